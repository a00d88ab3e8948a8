module pqplane/h2c

go 1.24
