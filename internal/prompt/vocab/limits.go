package vocab

import "errors"

// Limits of a vocabulary file. The largest public vocabularies have about 260,000 tokens in 35 MB.
const (
	maxFileBytes  = 256 << 20
	maxTokens     = 1 << 21
	maxTokenBytes = 1 << 16
	maxBlobBytes  = 1 << 28
	maxMerges     = 1 << 23
	maxAdded      = 1 << 16
)

// ErrFormat is wrapped by every error about a vocabulary file's contents.
var ErrFormat = errors.New("vocab: malformed vocabulary")

// ErrTooLarge is wrapped when a file or one of its parts exceeds its bound.
var ErrTooLarge = errors.New("vocab: vocabulary too large")
