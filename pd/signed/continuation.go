package signed

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// appendContinuation adds a signature for the header with endpoints of continuations.
func (s *Signer) appendContinuation(headers []request.HeaderSet) []request.HeaderSet {
	for _, h := range headers {
		if h.Name == request.HeaderContinuation {
			return append(headers, request.HeaderSet{Name: request.HeaderContinuationSignature, Value: s.SignContinuation(h.Value)})
		}
	}
	return headers
}

// SignContinuation returns the value of request.HeaderContinuationSignature for the header's value. The
// signature of other targets does not cover it, because older sidecars verify that one.
func (s *Signer) SignContinuation(endpoints string) string {
	return s.sign(func(until int64) []byte { return signedContinuation(until, endpoints) })
}

// VerifyContinuation returns nil if signature is valid for the value of request.HeaderContinuation with
// any of the keys, and ErrSignature otherwise.
func (v *Verifier) VerifyContinuation(signature, endpoints string) error {
	return v.verify(signature, func(until int64) []byte { return signedContinuation(until, endpoints) })
}

// signedContinuation returns the signed text. It differs from those of other targets.
func signedContinuation(until int64, endpoints string) []byte {
	return fmt.Appendf(nil, "grapevine continuation 1\n%d\n%d %s\n", until, len(endpoints), endpoints)
}
