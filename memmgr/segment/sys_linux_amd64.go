package segment

const sysMemfdCreate = 319
