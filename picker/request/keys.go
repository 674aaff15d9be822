package request

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// namedBytes is how much of each end of a prompt makes its name.
const namedBytes = 4096

// PromptKey names a request's prompt by its ends and its length, 0 when it has
// none.
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

// ClientKey names who asked, by the prompt's name when nothing else does.
func (r *Request) ClientKey(prompt uint64) uint64 {
	for _, name := range [...]string{r.Session, r.User, r.FairnessID} {
		if name != "" {
			return xxhash.Sum64String(name)
		}
	}
	return prompt
}
