package segment

const SysMemfdCreate = sysMemfdCreate
