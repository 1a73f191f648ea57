-- For Debian's Lua as it was just built: lines are written to a file, read back, sorted and counted; ends with an error
-- if anything differs.
local path = arg[1]
local lines, state = {}, 1
for index = 1, 20000 do
    state = (state * 1103515245 + 12345) % 2147483648
    lines[index] = string.format("%010d %s", state, ("x"):rep(index % 60))
end
local file = assert(io.open(path, "w"))
assert(file:setvbuf("full", 1000))
for _, line in ipairs(lines) do assert(file:write(line, "\n")) end
assert(file:close())
local back = {}
for line in io.lines(path) do back[#back + 1] = line end
assert(#back == #lines)
for index, line in ipairs(lines) do assert(back[index] == line, "line " .. index) end
table.sort(back)
for index = 2, #back do assert(back[index - 1] <= back[index]) end
local changed = assert(io.open(path, "r+"))
assert(changed:seek("set", 0) == 0 and changed:write(back[1]) and changed:seek("end") > 0 and changed:close())
assert(os.rename(path, path .. ".moved") and not io.open(path))
assert(io.open(path .. ".moved"):read(#back[1]) == back[1])
assert(os.remove(path .. ".moved"))
