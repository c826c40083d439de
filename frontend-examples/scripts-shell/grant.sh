#!/usr/bin/env bash
# Commit slots for an order exactly once, with curl and jq.
#
#     EARMARK_KEY=emk_... ./grant.sh http://127.0.0.1:7878 ORDER TENANT SLOTS HOURS
#
# ORDER is the idempotency key: after a lost answer, run it again. Exits with 0 when the slots are the tenant's.
set -eu

[ $# -eq 5 ] && [ -n "${EARMARK_KEY:-}" ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 64; }
url=$1 order=$2 tenant=$3 slots=$4 hours=$5
here=$(dirname "$0")
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# ask OPERATION [VARIABLES]: the data of one operation of grant.graphql; what went wrong goes to standard error.
ask() {
    jq -n --rawfile query "$here/grant.graphql" --arg operation "$1" --argjson variables "${2:-null}" \
        '{query: $query, operationName: $operation, variables: $variables}' |
        curl -sS --retry 5 --retry-connrefused --max-time 30 -o "$answer" "$url/graphql" \
            -H "Authorization: Bearer $EARMARK_KEY" -H 'Content-Type: application/json' -d @-
    jq -e 'if .errors then error(.errors[0].message) else .data end' "$answer"
}

shelf=$(ask Shelf)
input=$(printf '%s' "$shelf" | jq -e --arg order "$order" --arg tenant "$tenant" --argjson slots "$slots" --argjson hours "$hours" '
    (.capacityReservations.nodes | max_by(.free)) as $place
    | (now * 1000 | floor) as $now
    | {input: {
        tenantId: .viewer.tenant.id, accountId: $place.accountId, reservationId: $place.reservationId,
        grantTenantId: $tenant, slots: $slots, startsAt: $now, endsAt: ($now + $hours * 3600000), idempotencyKey: $order}}')
outcome=$(ask Grant "$input" | jq '.createGrant')

case $(printf '%s' "$outcome" | jq -r '.__typename') in
Grant)
    printf '%s' "$outcome" | jq -r '"granted: \(.id), \(.slots) slots until \(.endsAt / 1000 | todate)"' ;;
Conflict) # a first run got through, with a term that began earlier
    printf '%s' "$outcome" | jq -re 'if .grantId then "fulfilled before: \(.grantId)" else error(.message) end' ;;
CapacityUnavailable)
    printf '%s' "$outcome" | jq -r 'if .earliestFit then "full: they fit from \(.earliestFit.startsAt / 1000 | todate) on"
        else "full: they never fit, \(.granted) of \(.total) slots are granted" end'
    exit 1 ;;
*)
    printf '%s' "$outcome" | jq -r '"\(.__typename): \(.message)"'
    exit 1 ;;
esac
