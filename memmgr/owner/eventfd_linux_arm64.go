package owner

const sysEventfd2 = 19
