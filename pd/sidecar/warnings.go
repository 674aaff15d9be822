package sidecar

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// trouble is the reason a remote prefill failed. The decode engine then prefills locally, so
// clients see no error and the log is the only record.
type trouble uint8

const (
	refusedLeg trouble = iota
	lateLeg
	brokenLeg
	failedLeg
	garbageLeg
	tlsLeg
	credentials
	unknownModel
	noRanks
	handedNothing
	transferFailed
	tooOld
	readFreed
	notAllowed
	numTroubles
)

// troubles maps failures to descriptions and hints.
var troubles = [numTroubles]struct{ what, look string }{
	refusedLeg:     {"no connection to the prefill engine", "is it up, does it listen on more than localhost, and is the port its own?"},
	lateLeg:        {"the prefill engine does not answer in time", "is it overloaded or stuck, or --prefill-timeout shorter than its longest prompts take?"},
	brokenLeg:      {"the prefill engine breaks the connection off", "has it been started again, and if it serves TLS, is --enable-tls prefiller given?"},
	failedLeg:      {"the prefill engine answers with an error", "its own log says why"},
	garbageLeg:     {"the prefill engine's answer is not one", "is the port that of an engine, and does --enable-tls prefiller say what it speaks?"},
	tlsLeg:         {"no TLS with the prefill engine", "does it serve TLS as --enable-tls prefiller says, with a certificate that is trusted here and names its address?"},
	credentials:    {"the prefill engine refuses the request's key", "have both engines the same keys?"},
	unknownModel:   {"the prefill engine does not know the model", "do both engines serve it under the same name?"},
	noRanks:        {"the prefill engine's bootstrap server does not tell its ranks", "is it up, and --mooncake-bootstrap-port its port?"},
	handedNothing:  {"the prefill engine hands nothing over", "has it the KV connector that --kv-connector names, and the role of a producer?"},
	transferFailed: {"decode fails with what prefill has handed over", "are both engines of one version, model and cache format, and does the decode engine reach the address that prefill names (VLLM_NIXL_SIDE_CHANNEL_HOST)?"},
	tooOld:         {"KV transfers are too old when decode is asked", "is --lease the time that the prefill engines keep blocks?"},
	readFreed:      {"a KV transfer may have read blocks that the prefill engine had freed; the answer was withheld and computed again", "was an engine or this process stopped for longer than --lease? Prefixes cached at the decode engine are unused until it restarts"},
	notAllowed:     {"prefill targets refused: neither signed by a picker nor listed", "is the picker's key in --verify-key-file, or the engine in --endpoints or --allow, and are the clocks right?"},
}

// complaintEvery is the minimum interval between logs of the same failure.
const complaintEvery = time.Minute

// complaints rate-limits the logs of each failure. It is safe for concurrent use.
type complaints struct {
	mu    sync.Mutex
	last  [numTroubles]time.Time
	quiet [numTroubles]int
}

// complain logs a failure with a hint.
func (s *Server) complain(t trouble, target string, err error) {
	now, c := s.o.Now(), &s.complaints
	c.mu.Lock()
	if !c.last[t].IsZero() && now.Sub(c.last[t]) < complaintEvery {
		c.quiet[t]++
		c.mu.Unlock()
		return
	}
	more := c.quiet[t]
	c.last[t], c.quiet[t] = now, 0
	c.mu.Unlock()
	args := []any{"what", troubles[t].what, "look_at", troubles[t].look, "since_last", more}
	if target != "" {
		args = append(args, "target", target)
	}
	if err != nil {
		args = append(args, "error", err)
	}
	s.o.Log.Warn("remote prefill failed, the decode engine computed the prompt", args...)
}

// complainOf logs the failure of a prefill leg, unless the request or load is the cause.
func (s *Server) complainOf(p *prefilled) {
	switch {
	case p.ours:
	case p.err != nil && tlsError(p.err), p.status == http.StatusBadRequest && bytes.Contains(p.text, wordHTTPS):
		s.complain(tlsLeg, p.target, p.err)
	case p.rejected && (p.status == http.StatusUnauthorized || p.status == http.StatusForbidden):
		s.complain(credentials, p.target, nil)
	case p.rejected && p.status == http.StatusNotFound:
		s.complain(unknownModel, p.target, nil)
	default:
		if t, ok := map[kvtransfer.Fault]trouble{
			kvtransfer.Refused: refusedLeg, kvtransfer.Timeout: lateLeg, kvtransfer.Broken: brokenLeg, kvtransfer.Failed: failedLeg, kvtransfer.Garbage: garbageLeg,
		}[p.fault]; ok {
			s.complain(t, p.target, p.err)
		}
	}
}

// wordHTTPS is in the responses of TLS servers to plaintext requests.
var wordHTTPS = []byte("HTTPS")

// tlsError reports whether a leg failed because of TLS.
func tlsError(err error) bool {
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}
