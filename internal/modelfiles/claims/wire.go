package claims

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/grapevine-epp/grapevine/internal/varint"
)

// Limits of values from peers.
const (
	maxFiles  = 64
	maxName   = 255
	maxCommit = 64
)

var errClaim = errors.New("claims: malformed claim of a peer")

// Append appends the encoded claim to b.
func (c *Claim) Append(b []byte) []byte {
	b = binary.AppendVarint(append(b, byte(c.Stage)), c.Loaded)
	b = appendText(b, c.Commit)
	b = binary.AppendUvarint(b, uint64(len(c.Files)))
	for _, f := range c.Files {
		sum, _ := hex.DecodeString(f.SHA256) // a checksum of this replica
		b = binary.AppendVarint(appendText(b, f.Name), f.Bytes)
		b = appendText(b, string(sum))
	}
	return b
}

// Read decodes a claim. It ignores later bytes, which future releases may add. It does not check the
// names of files.
func Read(b []byte) (c Claim, err error) {
	r := varint.Reader{B: b}
	c.Stage, c.Loaded, c.Commit = Stage(r.Byte()), r.Natural(), string(readText(&r, maxCommit))
	n := r.Count()
	if r.Err != nil || c.Stage == None || c.Stage > Ready || n > maxFiles {
		return Claim{}, errClaim
	}
	for range n {
		f := File{Name: string(readText(&r, maxName)), Bytes: r.Natural(), SHA256: hex.EncodeToString(r.Bytes())}
		if r.Err != nil || len(f.SHA256) != 2*sha256.Size {
			return Claim{}, errClaim
		}
		c.Files = append(c.Files, f)
	}
	return c, nil
}

func readText(r *varint.Reader, limit int) []byte {
	b := r.Bytes()
	if len(b) > limit {
		r.Fail(errClaim)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
