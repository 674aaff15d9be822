-- Asks Grapevine where a request goes, with the client's own headers and as much of
-- its body as one buffer holds.

local picker = {host = "127.0.0.1", port = 9006}

-- Headers that only pickers set, and those that belong to a connection.
local control = {"x-gateway-destination-endpoint", "x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port", "x-kv-cache-source-host-port",
  "x-grapevine-continuation-hosts-ports", "x-grapevine-continuation-signature"}
local hop = {["host"] = 1, ["connection"] = 1, ["content-length"] = 1, ["transfer-encoding"] = 1, ["upgrade"] = 1, ["expect"] = 1, ["te"] = 1, ["trailer"] = 1}

-- ask returns status, headers and body of the picker's answer, nil where none comes.
local function ask(txn)
  local body = txn.sf:req_body() or ""
  local lines = {"POST /v1/pick HTTP/1.0", "Host: picker", "X-Original-Method: " .. txn.sf:method(), "X-Original-URI: " .. txn.sf:url(), "Content-Length: " .. #body}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not hop[name] then
      for _, value in pairs(values) do lines[#lines + 1] = name .. ": " .. value end
    end
  end
  local s = core.tcp()
  s:settimeout(5)
  if not s:connect(picker.host, picker.port) then return nil end
  if not s:send(table.concat(lines, "\r\n") .. "\r\n\r\n" .. body) then s:close() return nil end
  local first = s:receive("*l")
  local status = first and tonumber(first:match("^HTTP/%S+ (%d+)"))
  if not status then s:close() return nil end
  local headers = {}
  while true do
    local line = s:receive("*l")
    if not line then s:close() return nil end
    local name, value = line:match("^([^:]+):%s*(.-)%s*$")
    if not name then break end
    headers[name:lower()] = value
  end
  local text = headers["content-length"] and s:receive(tonumber(headers["content-length"])) or ""
  s:close()
  return status, headers, text
end

local function answer(txn, status, headers, text)
  local reply = txn:reply{status = status}
  for _, name in ipairs{"content-type", "retry-after", "x-llm-d-request-dropped-reason"} do
    if headers[name] then reply:add_header(name, headers[name]) end
  end
  reply:set_body(text)
  txn:done(reply)
end

core.register_action("gv_pick", {"http-req"}, function(txn)
  for _, name in ipairs(control) do txn.http:req_del_header(name) end
  if core.backends["picker"].servers["picker"]:get_stats().status:sub(1, 2) ~= "UP" then return end
  local status, headers, text = ask(txn)
  if status == 200 then
    txn:set_var("txn.gv_id", headers["x-pick-id"])
    if headers["x-pick-model"] then
      -- The engine knows the model by another name, and HAProxy does not change bodies.
      answer(txn, 501, {["content-type"] = "application/json"}, '{"error":{"message":"the model has another name at the engine, which this proxy cannot set","type":"invalid_request_error","code":501}}')
    end
    txn:set_var("txn.gv_server", (headers["x-gateway-destination-endpoint"]:gsub("[^%w]", "_")))
    for i = 2, #control do
      if headers[control[i]] then txn.http:req_set_header(control[i], headers[control[i]]) end
    end
  elseif status and status >= 400 and status ~= 401 then
    answer(txn, status, headers, text) -- refused: the client gets the answer as it is
  end -- else no picker answers: the backend places
end)
