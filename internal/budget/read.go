package budget

import (
	"errors"
	"io"
)

// firstRead is the buffer size allocated before any announced data was received.
const firstRead = 1 << 10

// ReadAnnounced reads n bytes, a length announced by the peer, into a new slice. The slice's
// capacity is at most twice the received data, or firstRead, for any announced length. It returns
// the received bytes, with io.ErrUnexpectedEOF if r ends early.
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
