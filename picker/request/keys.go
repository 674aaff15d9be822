package request

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// namedBytes is the number of bytes hashed at each end of a prompt.
const namedBytes = 4096

// PromptKey returns a hash of the prompt's ends and length, 0 without a prompt.
func (r *Request) PromptKey() uint64 {
	body := r.Body
	if r.Prompt.Main.Found() && r.Prompt.Main[1] <= len(body) {
		body = r.Prompt.Main.Of(body)
	}
	n := len(body)
	switch {
	case n == 0:
		return 0
	case n <= 2*namedBytes:
		return xxhash.Sum64(body)
	}
	return xxhash.Sum64(body[:namedBytes]) ^ bits.RotateLeft64(xxhash.Sum64(body[n-namedBytes:]), 1) ^ uint64(n)
}

// ClientKey returns a hash of the client's identity, or the prompt's hash without one.
func (r *Request) ClientKey(prompt uint64) uint64 {
	for _, name := range [...]string{r.Session, r.User, r.FairnessID} {
		if name != "" {
			return xxhash.Sum64String(name)
		}
	}
	return prompt
}
