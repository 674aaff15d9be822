package federation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// HopLife is the validity of a hop token. It bounds the request's time in transit and in the other
// cluster's queue. HopSkew is the largest clock difference between two clusters.
const (
	HopLife = 2 * time.Minute
	HopSkew = 10 * time.Minute
)

// MaxHops is the most clusters that one request may pass.
const MaxHops = 8

const (
	hopVersion = "1"
	hopParts   = 6
	hopMAC     = 18 // bytes, of 32: 24 characters
	maxHopText = 512
)

// ErrHop means that a hop token is invalid: not made by a member of the federation, made for
// another cluster, or expired.
var ErrHop = errors.New("federation: hop token")

// Hop is the content of a token.
type Hop struct {
	From, To string // clusters
	Until    time.Time
	Count    int // clusters that the request has left, at least 1
}

// Hops signs and verifies the tokens that requests carry between clusters. They prevent routing
// loops. Safe for concurrent use.
type Hops struct {
	self string
	keys atomic.Pointer[[][]byte] // the first signs, all verify
}

// NewHops returns the Hops of cluster self.
func NewHops(s *filter.Secret, self string) *Hops {
	h := &Hops{self: self}
	h.SetSecrets(s, nil)
	return h
}

// SetSecrets replaces the secrets. New tokens are signed with use; tokens signed with also verify
// too. also may be nil.
func (h *Hops) SetSecrets(use, also *filter.Secret) {
	keys := [][]byte{use.Derive("hop")}
	if also != nil {
		keys = append(keys, also.Derive("hop"))
	}
	h.keys.Store(&keys)
}

// Sign returns a token for a request sent to another cluster. count is the number of clusters it
// has left, including this one.
func (h *Hops) Sign(to string, count int, now time.Time) string {
	b := make([]byte, 0, len(h.self)+len(to)+64)
	b = append(append(b, hopVersion...), ';')
	b = append(append(b, h.self...), ';')
	b = append(append(b, to...), ';')
	b = append(strconv.AppendInt(b, now.Add(HopLife).UnixMilli(), 10), ';')
	b = strconv.AppendInt(b, int64(count), 10)
	mac := mac((*h.keys.Load())[0], b)
	return string(base64.RawURLEncoding.AppendEncode(append(b, ';'), mac))
}

func mac(key, b []byte) []byte {
	m := hmac.New(sha256.New, key)
	_, _ = m.Write(b)
	return m.Sum(nil)[:hopMAC]
}

// signed reports whether a member of the federation signed the text.
func (h *Hops) signed(text string, sum []byte) bool {
	for _, key := range *h.keys.Load() {
		if hmac.Equal(sum, mac(key, []byte(text))) {
			return true
		}
	}
	return false
}

// Verify checks a request's token. It returns ErrHop if the token is invalid.
func (h *Hops) Verify(token string, now time.Time) (Hop, error) {
	at := strings.LastIndexByte(token, ';')
	if at < 0 || len(token) > maxHopText {
		return Hop{}, ErrHop
	}
	sum, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	if err != nil || !h.signed(token[:at], sum) {
		return Hop{}, ErrHop
	}
	parts := strings.Split(token, ";")
	if len(parts) != hopParts || parts[0] != hopVersion || parts[2] != h.self {
		return Hop{}, ErrHop
	}
	until, err := strconv.ParseInt(parts[3], 10, 64)
	count, err2 := strconv.Atoi(parts[4])
	if err != nil || err2 != nil || count < 1 || count > MaxHops {
		return Hop{}, ErrHop
	}
	hop := Hop{From: parts[1], To: parts[2], Until: time.UnixMilli(until), Count: count}
	if left := hop.Until.Sub(now); left < -HopSkew || left > HopLife+HopSkew {
		return Hop{}, ErrHop
	}
	return hop, nil
}
