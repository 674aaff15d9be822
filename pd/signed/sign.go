package signed

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// signatureLife is how long a signature holds: a request may wait that long
// between the picker and the proxy beside the decode engine.
const signatureLife = 2 * time.Minute

// signatureSkew is how far the clocks of picker and proxy may differ.
const signatureSkew = 10 * time.Minute

// ErrSignature says that targets are not signed by a picker, or not any more.
var ErrSignature = errors.New("targets are not signed by a picker")

// Signer signs targets with a picker's private key. Proxies hold the public half
// only. It is safe for concurrent use.
type Signer struct {
	key ed25519.PrivateKey
	now func() time.Time
}

// NewSigner returns a signer from a seed of 32 bytes.
func NewSigner(seed []byte, now func() time.Time) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("signed: the signing key has %d bytes, not %d", len(seed), ed25519.SeedSize)
	}
	return &Signer{ed25519.NewKeyFromSeed(seed), now}, nil
}

// Public returns the key that verifiers need.
func (s *Signer) Public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// Append returns headers with a signature of those that name prefill and encode
// endpoints, or as they are where there is none. A nil Signer signs nothing.
func (s *Signer) Append(headers []request.HeaderSet) []request.HeaderSet {
	if s == nil {
		return headers
	}
	var prefill, encode string
	for _, h := range headers {
		switch h.Name {
		case request.HeaderPrefiller:
			prefill = h.Value
		case request.HeaderEncoders:
			encode = h.Value
		}
	}
	if prefill == "" && encode == "" {
		return headers
	}
	return append(headers, request.HeaderSet{Name: request.HeaderSignature, Value: s.Sign(prefill, encode)})
}

// Sign returns the value of request.HeaderSignature for the values of the two
// headers, "" for one that is absent.
func (s *Signer) Sign(prefill, encode string) string {
	until := s.now().Add(signatureLife).Unix()
	sig := ed25519.Sign(s.key, signed(until, prefill, encode))
	return "v1." + strconv.FormatInt(until, 10) + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// Verifier checks signatures against one or more public keys, so that keys can be
// rotated. It is safe for concurrent use.
type Verifier struct {
	keys []ed25519.PublicKey
	now  func() time.Time
}

// NewVerifier returns a verifier. Each key has 32 bytes.
func NewVerifier(now func() time.Time, keys ...[]byte) (*Verifier, error) {
	v := &Verifier{now: now}
	for _, k := range keys {
		if len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("signed: a verification key has %d bytes, not %d", len(k), ed25519.PublicKeySize)
		}
		v.keys = append(v.keys, k)
	}
	return v, nil
}

// Verify returns nil when signature is one of the headers' values by any of the
// keys, and ErrSignature otherwise.
func (v *Verifier) Verify(signature, prefill, encode string) error {
	rest, ok := strings.CutPrefix(signature, "v1.")
	at, text, found := strings.Cut(rest, ".")
	until, err := strconv.ParseInt(at, 10, 64)
	sig, err2 := base64.RawURLEncoding.DecodeString(text)
	if !ok || !found || err != nil || err2 != nil {
		return ErrSignature
	}
	if left := until - v.now().Unix(); left < -int64(signatureSkew/time.Second) || left > int64((signatureSkew+signatureLife)/time.Second) {
		return fmt.Errorf("%w: it is of another time", ErrSignature)
	}
	message := signed(until, prefill, encode)
	for _, k := range v.keys {
		if ed25519.Verify(k, message, sig) {
			return nil
		}
	}
	return ErrSignature
}

// signed is what a signature covers. Lengths keep the parts apart.
func signed(until int64, prefill, encode string) []byte {
	return fmt.Appendf(nil, "grapevine targets 1\n%d\n%d %s\n%d %s\n", until, len(prefill), prefill, len(encode), encode)
}
