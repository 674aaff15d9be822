package budget

import (
	"errors"
	"io"
)

// firstRead is how much of what a peer has announced is made room for before any of it has come.
const firstRead = 1 << 10

// ReadAnnounced reads n bytes whose number the other side has announced, into a slice of
// its own. The slice has twice what has come at most, and firstRead: who announces many
// and sends none is given none. It returns what has come, and io.ErrUnexpectedEOF where
// r ends before.
func ReadAnnounced(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, min(n, firstRead))
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(n, 2*cap(b))), b...)
		}
		got, err := r.Read(b[len(b):cap(b)])
		if b = b[:len(b)+got]; err != nil && len(b) < n {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return b, err
		}
	}
	return b, nil
}
