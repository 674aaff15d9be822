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

// Class is the kind of a request in numbers: its API, whether it is streamed, the order of magnitude of
// its prompt, and its optional features.
type Class [ClassParts]uint8

// ClassParts is the number of parts of a Class.
const ClassParts = 4

// Class returns the request's class.
func (r *Request) Class() Class {
	c := Class{uint8(r.Kind), 0, uint8(bits.Len(uint(max(r.InputTokens, 0))) / 2)}
	if r.Stream {
		c[1] = 1
	}
	for bit, uses := range [...]bool{r.Prompt.Tools.Found(), r.Constrained, r.Whole, r.reads.logprobs} {
		if uses {
			c[3] |= 1 << bit
		}
	}
	return c
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
