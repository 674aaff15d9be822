//go:build !linux

package parts

import (
	"errors"
	"net"
)

var errTaken = errors.New("ports: taken")

// hold finds out whether a port is free.
func hold(port int) (letGo func(), err error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, err
	}
	_ = l.Close()
	if !udpFree(port) {
		return nil, errTaken
	}
	return func() {}, nil
}
