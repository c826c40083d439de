"""Tortoise models of the registry's tables, and the client that runs their queries on a connection of ours.

The tables themselves are made by the migrations; a test compares the two. Tortoise serves simple reads and writes of
single rows: `Tenant.filter(tenant_id=…).using_db(on(connection))`. It never owns a connection: whoever calls has one,
from `Database.acquire` or `Database.transaction`, and every query runs on exactly that one. So there is no second pool,
no default context, so no transaction of Tortoise's either (a cancelled one leaks its connection), and any number of
databases in one process.
"""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, NoReturn, cast

from pypika_tortoise.dialects import PostgreSQLQuery
from pypika_tortoise.queries import Table
from tortoise import fields
from tortoise.apps import Apps
from tortoise.backends.asyncpg.client import AsyncpgDBClient
from tortoise.backends.base.client import BaseDBAsyncClient
from tortoise.connection import ConnectionHandler
from tortoise.contrib.postgres.fields import ArrayField
from tortoise.models import MetaInfo, Model

from storage.database import AnyConnection

_APP: Final = "earmark"


class _OneConnection(AsyncpgDBClient):
    """Tortoise's client for one connection that somebody else owns. Without a connection it only knows the dialect."""

    def __init__(self, connection: AnyConnection | None) -> None:
        super().__init__(connection_name=_APP)
        self._borrowed = connection

    def acquire_connection(self) -> AbstractAsyncContextManager[Any]:  # type: ignore[override]
        assert self._borrowed is not None, "a query of the registry must say using_db(on(connection))"
        return nullcontext(self._borrowed)

    async def create_connection(self, with_db: bool) -> NoReturn:
        raise AssertionError("connections are opened by storage.database alone")

    async def _translate_exceptions(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Let asyncpg's exceptions through as they are: `storage.database.trouble_of` reads them."""
        return await func(self, *args, **kwargs)


_DIALECT: Final = _OneConnection(None)


def on(connection: AnyConnection) -> BaseDBAsyncClient:
    """What `using_db` takes, to run a query on `connection`."""
    return _OneConnection(connection)


class _Meta(MetaInfo):
    """A model here has no database by default: where Tortoise asks for one to learn the dialect, it gets just that."""

    __slots__ = ()

    @property
    def db(self) -> BaseDBAsyncClient:
        return _DIALECT


class Text(fields.Field[str]):
    """`text`, which Tortoise's own TextField does not allow as a key."""

    field_type = str
    SQL_TYPE = "TEXT"


class Document(fields.JSONField[Any]):
    """`jsonb` on connections of ours, whose codec already turns JSON into Python and back."""

    def to_db_value(self, value: Any, instance: Any) -> Any:
        return value

    def to_python_value(self, value: Any) -> Any:
        return value


class Tenant(Model):
    tenant_id = Text(primary_key=True)
    name = Text()
    is_root = fields.BooleanField(default=False)
    created_at = fields.BigIntField()
    deleted_at = fields.BigIntField(null=True)
    closed_at = fields.BigIntField(null=True)

    class Meta:
        table = "tenant"


class Project(Model):
    project_id = Text(primary_key=True)
    tenant: fields.ForeignKeyRelation[Tenant] = fields.ForeignKeyField(f"{_APP}.Tenant", related_name=False)
    name = Text()
    created_at = fields.BigIntField()
    deleted_at = fields.BigIntField(null=True)

    class Meta:
        table = "project"


class ApiKey(Model):
    key_id = Text(primary_key=True)
    tenant: fields.ForeignKeyRelation[Tenant] = fields.ForeignKeyField(f"{_APP}.Tenant", related_name=False)
    name = Text()
    prefix = Text(unique=True)
    secret_hash = fields.BinaryField()
    permissions = ArrayField("text")
    created_at = fields.BigIntField()
    expires_at = fields.BigIntField(null=True)
    revoked_at = fields.BigIntField(null=True)
    revoked_reason = Text(null=True)
    last_used_at = fields.BigIntField(null=True)
    scope_filter = ArrayField("text", default=list)
    description = Text(null=True)
    metadata = Document(null=True)
    expiry_told = fields.BooleanField(default=False)

    class Meta:
        table = "api_key"


class ProviderAccount(Model):
    account_id = Text(primary_key=True)
    tenant: fields.ForeignKeyRelation[Tenant] = fields.ForeignKeyField(f"{_APP}.Tenant", related_name=False)
    name = Text()
    provider = Text()
    kind = Text()
    settings = Document(default=dict)
    created_at = fields.BigIntField()
    deleted_at = fields.BigIntField(null=True)
    scanned_at = fields.BigIntField(null=True)
    scan_complete = fields.BooleanField(null=True)
    scan_problems = Document(null=True)

    class Meta:
        table = "provider_account"


class Pool(Model):
    pool_id = Text(primary_key=True)
    name = Text()
    created_at = fields.BigIntField()

    class Meta:
        table = "pool"


class PoolOffer(Model):
    """The table's key is (pool_id, tenant_id), Tortoise knows keys of one column only: filter by both, save neither."""

    pool_id = Text(primary_key=True)
    tenant_id = Text()
    created_at = fields.BigIntField()

    class Meta:
        table = "pool_offer"


MODELS: Final = (Tenant, Project, ApiKey, ProviderAccount, Pool, PoolOffer)


def _finish_models() -> None:
    """What `Tortoise.init` does, without a connection: relate the models and prepare their queries."""
    Apps(None, ConnectionHandler()).init_app(_APP, [sys.modules[__name__]])
    for model in MODELS:
        meta = cast(Any, model)._meta  # noqa: SLF001 - Tortoise's documented handle on a model
        meta.__class__ = _Meta
        meta.finalise_model()
        meta.basetable = Table(name=meta.db_table)
        meta.basequery = PostgreSQLQuery.from_(meta.basetable)
        meta.basequery_all_fields = meta.basequery.select(*meta.db_fields)


_finish_models()
