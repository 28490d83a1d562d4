"""The steps of `limits.py` as scripts that run whole inside a Valkey server, by its clock.

KEYS are the limits' names. ARGV of a limit: its kind, its limit, the request's amount. A window is kept as packed slots
of {first second, last second, amount}; requests in flight are a sorted set of ids by the end of their lease.
"""

_WINDOWS = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local function load(key)
  local packed = redis.call('GET', key)
  local window, total = {}, 0
  for _, slot in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if now < slot[2] + 60 then
      window[#window + 1] = slot
      total = total + slot[3]
    end
  end
  return window, total
end
local function save(key, window)
  if #window > 0 then
    redis.call('SET', key, cmsgpack.pack(window), 'EX', 61)
  end
end
local function add(window, amount)
  local last = window[#window]
  if last and now - last[1] < 1 then
    if now > last[2] then last[2] = now end
    last[3] = last[3] + amount
  else
    window[#window + 1] = {now, now, amount}
  end
end
"""

ADMIT = (
    _WINDOWS
    + """
local id, lease, busy = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local never = 1000000000
local windows, totals, refused, longest = {}, {}, 0, 0
for i, key in ipairs(KEYS) do
  local kind, limit, amount = ARGV[3 * i + 1], tonumber(ARGV[3 * i + 2]), tonumber(ARGV[3 * i + 3])
  local wait = 0
  if kind == 'concurrent' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if redis.call('ZCARD', key) >= limit then wait = busy end
  else
    windows[i], totals[i] = load(key)
    local over = totals[i] + amount - limit
    if amount > limit then
      wait = never
    elseif over > 0 then
      wait = 60
      for _, slot in ipairs(windows[i]) do
        over = over - slot[3]
        if over <= 0 then
          wait = math.max(0.001, slot[2] + 60 - now)
          break
        end
      end
    end
  end
  if wait > longest then refused, longest = i, wait end
end
local answer = {refused, string.format('%.6f', longest)}
for i, key in ipairs(KEYS) do
  if ARGV[3 * i + 1] == 'concurrent' then
    if refused == 0 then
      redis.call('ZADD', key, now + lease, id)
      redis.call('EXPIRE', key, lease * 10)
    end
    answer[#answer + 1], answer[#answer + 2] = 0, '0'
  else
    local window, total = windows[i], totals[i]
    if refused == 0 then
      local amount = tonumber(ARGV[3 * i + 3])
      add(window, amount)
      save(key, window)
      total = total + amount
    end
    local last = window[#window]
    answer[#answer + 1] = total
    answer[#answer + 1] = string.format('%.6f', last and last[2] + 60 - now or 0)
  end
end
answer[#answer + 1] = string.format('%.6f', now)
return answer
"""
)
"""ARGV: request id, lease and busy seconds, then the limits. Answers 0 (or the number of the limit that refuses), the
wait, and for each limit what is used and the seconds until it is whole; at last the server's time."""

RELEASE = (
    _WINDOWS
    + """
local id, used, counted_at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
for i, key in ipairs(KEYS) do
  if ARGV[3 * i + 1] == 'concurrent' then
    redis.call('ZREM', key, id)
  else
    local window = load(key)
    local amount = tonumber(ARGV[3 * i + 3])
    local difference = used - amount
    if ARGV[3 * i + 1] == 'loop' then difference = -amount end
    if difference > 0 then
      add(window, difference)
    else
      for _, slot in ipairs(window) do
        if slot[1] <= counted_at and counted_at <= slot[2] then
          slot[3] = slot[3] - math.min(-difference, slot[3])
          break
        end
      end
    end
    save(key, window)
  end
end
return {1}
"""
)
"""ARGV: request id, tokens used, when the request was counted, then the limits that change: those
of a loop are given back."""

RENEW = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local ends = now + tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], ends, ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2] * 10)
for i = 2, #KEYS do
  redis.call('ZADD', KEYS[i], 'XX', ends, ARGV[i + 1])
  redis.call('EXPIRE', KEYS[i], ARGV[2] * 10)
end
return {redis.call('ZCARD', KEYS[1])}
"""
"""KEYS: the set of processes, then the set of each request in flight; ARGV: this process, the lease, then each request's
id. Answers how many processes live."""
