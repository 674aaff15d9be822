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

// HopLife is how long a hop token holds: a request may wait that long on its way and in
// the other cluster's queue. HopSkew is how far two clusters' clocks may differ.
const (
	HopLife = 2 * time.Minute
	HopSkew = 10 * time.Minute
)

// MaxHops bounds the clusters that one request may pass through.
const MaxHops = 8

const (
	hopVersion = "1"
	hopParts   = 6
	hopMAC     = 18 // bytes, of 32: 24 characters
	maxHopText = 512
)

// ErrHop says that a hop token was made by no member of the federation, for another
// cluster, or too long ago.
var ErrHop = errors.New("federation: hop token")

// Hop is what a token says of the way of a request.
type Hop struct {
	From, To string // clusters
	Until    time.Time
	Count    int // clusters that it has left, at least 1
}

// Hops makes and reads the tokens that requests carry from cluster to cluster, so that
// no request goes round in circles. Its methods may be called concurrently.
type Hops struct {
	self string
	keys atomic.Pointer[[][]byte] // the first signs, all verify
}

// NewHops returns what makes and reads tokens in a cluster.
func NewHops(s *filter.Secret, self string) *Hops {
	h := &Hops{self: self}
	h.SetSecrets(s, nil)
	return h
}

// SetSecrets replaces the secrets: tokens are made with use, and those that were made with
// also are good too. also may be nil.
func (h *Hops) SetSecrets(use, also *filter.Secret) {
	keys := [][]byte{use.Derive("hop")}
	if also != nil {
		keys = append(keys, also.Derive("hop"))
	}
	h.keys.Store(&keys)
}

// Sign returns the token of a request that goes from here to another cluster and has
// left so many clusters, this one included.
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

// signed reports whether a member of the federation made the text.
func (h *Hops) signed(text string, sum []byte) bool {
	for _, key := range *h.keys.Load() {
		if hmac.Equal(sum, mac(key, []byte(text))) {
			return true
		}
	}
	return false
}

// Verify reads a token that came with a request, or returns ErrHop.
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
