package parts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Range of the reserved ports.
const (
	first = 18_000
	last  = 31_999
)

// ErrNoPort is returned if no port is free.
var ErrNoPort = errors.New("parts: no free TCP port")

// ReservePorts returns n reserved ports and a function that releases them.
func ReservePorts(n int) (list []int, release func(), err error) {
	var held []func()
	release = func() {
		for _, letGo := range held {
			letGo()
		}
	}
	const all = last - first + 1
	begin := rand.IntN(all)
	for i := 0; i < all && len(list) < n; i++ {
		port := first + (begin+i)%all
		letGo, err := hold(port)
		if err != nil {
			continue
		}
		list, held = append(list, port), append(held, letGo)
	}
	if len(list) < n {
		release()
		return nil, nil, ErrNoPort
	}
	return list, release, nil
}

// FreeAddress reserves a port until the test ends and returns its address on
// 127.0.0.1. It ends the test when there is none.
func FreeAddress(tb interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
},
) string {
	tb.Helper()
	list, release, err := ReservePorts(1)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(release)
	return fmt.Sprintf("127.0.0.1:%d", list[0])
}

// udpFree reports whether the UDP port of that number is unused.
func udpFree(port int) bool {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	return c.Close() == nil
}
