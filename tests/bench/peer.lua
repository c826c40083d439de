-- Budgets in Redis, one script a request: a hash a budget, a hash a reservation, an answer a key. What it checks and writes
-- is what a reserve and its commit need at least. Amounts are 64-bit integers, as the protocol has them, which a number of
-- Lua's does not hold: they are kept as text and computed in two parts, (high, low) for high * BASE + low, 0 <= low < BASE.
-- KEYS: the answer, the reservation, the index of expiries, then the budgets, the widest first.
-- ARGV: reserve or commit, reservation id, amount, the time, the expiry, fingerprint.
local BASE = 1000000000

local function parse(text)
    local is_negative = string.sub(text, 1, 1) == '-'
    local digits = is_negative and string.sub(text, 2) or text
    local high, low = tonumber(string.sub(digits, 1, -10)) or 0, tonumber(string.sub(digits, -9))
    if not is_negative then return high, low end
    if low == 0 then return -high, 0 end
    return -high - 1, BASE - low
end

local function add(high, low, other_high, other_low)
    local sum = low + other_low
    if sum >= BASE then return high + other_high + 1, sum - BASE end
    return high + other_high, sum
end

local function negate(high, low)
    if low == 0 then return -high, 0 end
    return -high - 1, BASE - low
end

local function subtract(high, low, other_high, other_low)
    return add(high, low, negate(other_high, other_low))
end

local show
show = function(high, low)
    if high >= 0 then return high > 0 and string.format('%.0f%09.0f', high, low) or string.format('%.0f', low) end
    return '-' .. show(negate(high, low))
end

local known = redis.call('HMGET', KEYS[1], 'fingerprint', 'answer')
if known[1] then
    if known[1] ~= ARGV[6] then return cjson.encode({error = 'IDEMPOTENCY_MISMATCH'}) end
    return known[2]
end
local now, balances = tonumber(ARGV[4]), {}
local held_high, held_low = parse(ARGV[3])
local used_high, used_low = 0, 0
if ARGV[1] == 'commit' then
    local reservation = redis.call('HMGET', KEYS[2], 'status', 'estimate', 'expires_at')
    if not reservation[1] then return cjson.encode({error = 'NOT_FOUND'}) end
    if reservation[1] ~= 'ACTIVE' then return cjson.encode({error = 'RESERVATION_FINALIZED'}) end
    if tonumber(reservation[3]) < now then return cjson.encode({error = 'RESERVATION_EXPIRED'}) end
    used_high, used_low = held_high, held_low
    held_high, held_low = negate(parse(reservation[2]))
end
local taken_high, taken_low = add(held_high, held_low, used_high, used_low)
for place = 4, #KEYS do
    local budget = redis.call('HMGET', KEYS[place], 'status', 'allocated', 'reserved', 'spent', 'debt')
    if budget[1] ~= 'ACTIVE' then return cjson.encode({error = 'BUDGET_FROZEN', scope = KEYS[place]}) end
    local reserved_high, reserved_low = parse(budget[3])
    local spent_high, spent_low = parse(budget[4])
    local left_high, left_low = parse(budget[2])
    left_high, left_low = subtract(left_high, left_low, reserved_high, reserved_low)
    left_high, left_low = subtract(left_high, left_low, spent_high, spent_low)
    left_high, left_low = subtract(left_high, left_low, parse(budget[5]))
    left_high, left_low = subtract(left_high, left_low, taken_high, taken_low)
    if left_high < 0 then return cjson.encode({error = 'BUDGET_EXCEEDED', scope = KEYS[place]}) end
    balances[#balances + 1] = {
        scope = KEYS[place],
        remaining = show(left_high, left_low),
        reserved = show(add(reserved_high, reserved_low, held_high, held_low)),
        spent = show(add(spent_high, spent_low, used_high, used_low))
    }
end
for place = 4, #KEYS do
    local new = balances[place - 3]
    redis.call('HSET', KEYS[place], 'reserved', new.reserved, 'spent', new.spent)
end
local status = 'ACTIVE'
if ARGV[1] == 'reserve' then
    redis.call('HSET', KEYS[2], 'status', 'ACTIVE', 'estimate', ARGV[3], 'created_at', ARGV[4], 'expires_at', ARGV[5],
        'scopes', table.concat(KEYS, ' ', 4))
    redis.call('ZADD', KEYS[3], ARGV[5], ARGV[2])
else
    status = 'COMMITTED'
    redis.call('HSET', KEYS[2], 'status', status, 'charged', ARGV[3], 'finalized_at', ARGV[4])
    redis.call('ZREM', KEYS[3], ARGV[2])
end
local answer = cjson.encode({reservation_id = ARGV[2], status = status, balances = balances})
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[6], 'answer', answer)
redis.call('PEXPIRE', KEYS[1], 86400000)
return answer
