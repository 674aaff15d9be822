module example.com/session-scorer

go 1.26.0
