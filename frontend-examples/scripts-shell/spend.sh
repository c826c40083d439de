#!/usr/bin/env bash
# Run a command only if a budget has room for it, and charge what it says that it used.
#
#     CYCLES_BASE_URL=http://127.0.0.1:7878 CYCLES_API_KEY=emk_... CYCLES_TENANT=acme-corp ./spend.sh AGENT MOST COMMAND...
#
# MOST tokens are held before the command runs. The last line that it prints is the number of tokens it used; what is left
# of the hold goes back. Exits as the command does, with 75 when there is no budget for it.
set -eu

[ $# -ge 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 64; }
agent=$1 most=$2
shift 2
call=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n') # one key for each thing asked for: what is sent twice happens once

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# post PATH BODY: the status of the answer, which is in a file. A lost answer is asked for again.
post() {
    curl -sS --retry 5 --retry-connrefused --max-time 30 -o "$answer" -w '%{http_code}' "$CYCLES_BASE_URL/v1/$1" \
        -H "X-Cycles-API-Key: $CYCLES_API_KEY" -H 'Content-Type: application/json' -d "$2"
}

status=$(post reservations "$(jq -n --arg call "$call" --arg tenant "$CYCLES_TENANT" --arg agent "$agent" --argjson most "$most" '
    {idempotency_key: "\($call)-hold", subject: {tenant: $tenant, agent: $agent},
     action: {kind: "tool.call", name: "shell"}, estimate: {unit: "TOKENS", amount: $most}, ttl_ms: 600000}')")
if [ "$status" != 200 ]; then
    jq -r '"\(.error): \(.message)"' "$answer" >&2
    exit 75
fi
id=$(jq -r '.reservation_id' "$answer")

said=$("$@") || {
    code=$?
    post "reservations/$id/release" "{\"idempotency_key\": \"$call-release\"}" >/dev/null
    echo "the command failed with $code; nothing was spent" >&2
    exit "$code"
}
printf '%s\n' "$said" | sed '$d'
used=$(printf '%s\n' "$said" | sed -n '$p')
status=$(post "reservations/$id/commit" "$(jq -n --arg call "$call" --argjson used "$used" \
    '{idempotency_key: "\($call)-pay", actual: {unit: "TOKENS", amount: $used}}')")
[ "$status" = 200 ] || { jq -r '"not paid: \(.error): \(.message)"' "$answer" >&2; exit 75; }
jq -r '"used \(.charged.amount), given back \(.released.amount)"' "$answer"
