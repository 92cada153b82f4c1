package segment

var SysMemfdCreate = sysMemfdCreate
