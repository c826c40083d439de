"""Everything that reads capacity, in one object for the edges: views as of one instant, or a refusal.

Inputs are raw values as an edge got them. A read never writes, not even a boundary that is due (D49).
"""

from __future__ import annotations

from workers.capacity.event_reads import EventReads
from workers.capacity.grant_reads import GrantReads
from workers.capacity.instance_reads import InstanceReads
from workers.capacity.reservation_reads import ReservationReads
from workers.capacity.usage_reads import UsageReads


class CapacityReads(GrantReads, InstanceReads, ReservationReads, UsageReads, EventReads):
    """One object a node. The methods of each concept are in the module of its name."""
