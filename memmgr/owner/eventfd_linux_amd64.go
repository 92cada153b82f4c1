package owner

const sysEventfd2 = 290
