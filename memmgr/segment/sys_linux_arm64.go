package segment

const sysMemfdCreate = 279
