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

// headBytes is the number of bytes at the beginning of a prompt by which applications are
// distinguished.
const headBytes = 256

// HeadKey returns a hash of the prompt's beginning, or 1 without a prompt.
func (r *Request) HeadKey() uint64 {
	if !r.Prompt.Main.Within(r.Body) {
		return 1
	}
	head := r.Prompt.Main.Of(r.Body)
	return xxhash.Sum64(head[:min(len(head), headBytes)]) | 1
}

// TenantKey returns a hash of the tenant or end user that sends the request, 0 if it names none.
// Unlike a session, these send many requests.
func (r *Request) TenantKey() uint64 {
	for _, name := range [...]string{r.FairnessID, r.Tenant, r.User} {
		if name != "" {
			return xxhash.Sum64String(name)
		}
	}
	return 0
}

// ClassKey returns a hash of the request's kind, of whether it is streamed, and of the order of
// magnitude of its prompt.
func (r *Request) ClassKey() uint64 {
	class := uint64(r.Kind)<<16 | uint64(bits.Len(uint(max(r.InputTokens, 0)))/2)<<1
	if r.Stream {
		class |= 1
	}
	return (class + 1) * 0x9e3779b97f4a7c15
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
