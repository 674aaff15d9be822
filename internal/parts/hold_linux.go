package parts

import (
	"errors"

	"golang.org/x/sys/unix"
)

var errTaken = errors.New("ports: taken")

// hold binds a port. It binds without SO_REUSEADDR, so that the port is exclusive, and sets the
// option afterwards, so that a listener may share it.
func hold(port int) (letGo func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil && !udpFree(port) {
		err = errTaken
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return func() { _ = unix.Close(fd) }, nil
}
