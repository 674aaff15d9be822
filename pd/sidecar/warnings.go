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

// prefillFailure is the reason a remote prefill failed. The decode engine then prefills locally, so
// clients see no error and the log is the only record.
type prefillFailure uint8

const (
	refusedLeg prefillFailure = iota
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
	numPrefillFailures
)

// prefillFailures maps failures to descriptions and hints.
var prefillFailures = [numPrefillFailures]struct{ what, look string }{
	refusedLeg:     {"no connection to the prefill engine", "check that it runs, listens on more than localhost, and uses this port"},
	lateLeg:        {"the prefill engine did not answer in time", "check its load, and that --prefill-timeout is longer than its longest prompts need"},
	brokenLeg:      {"the prefill engine closed the connection", "check whether it restarted; if it serves TLS, set --enable-tls prefiller"},
	failedLeg:      {"the prefill engine answered with an error", "read its log for the reason"},
	garbageLeg:     {"the prefill engine's answer is not valid HTTP or JSON", "check that the port belongs to an engine, and that --enable-tls prefiller matches its protocol"},
	tlsLeg:         {"TLS with the prefill engine failed", "check that --enable-tls prefiller matches the engine, and that its certificate is trusted and names its address"},
	credentials:    {"the prefill engine rejected the request's API key", "give both engines the same keys"},
	unknownModel:   {"the prefill engine does not serve the model", "serve the model under the same name at both engines"},
	noRanks:        {"the prefill engine's bootstrap server does not list its ranks", "check that it runs, and that --mooncake-bootstrap-port is its port"},
	handedNothing:  {"the prefill engine returned no KV transfer", "check that its KV connector matches --kv-connector, and that its role is producer or both"},
	transferFailed: {"the decode engine failed with the KV transfer", "check that both engines have the same version, model and cache format, and that decode can reach the prefill engine's VLLM_NIXL_SIDE_CHANNEL_HOST"},
	tooOld:         {"the KV transfer expired before decode received the request", "set --lease to the time for which prefill engines keep blocks"},
	readFreed:      {"a KV transfer may have read blocks that the prefill engine had freed; the answer was withheld and computed again", "an engine or this process paused for longer than --lease; affected prefixes at the decode engine stay unused until it restarts"},
	notAllowed:     {"prefill targets rejected: neither signed by a picker nor listed", "add the picker's key to --verify-key-file, or the engine to --endpoints or --allow, and check the clocks"},
}

// complaintEvery is the minimum interval between logs of the same failure.
const complaintEvery = time.Minute

// complaints rate-limits the logs of each failure. It is safe for concurrent use.
type complaints struct {
	mu    sync.Mutex
	last  [numPrefillFailures]time.Time
	quiet [numPrefillFailures]int
}

// complain logs a failure with a hint.
func (s *Server) complain(t prefillFailure, target string, err error) {
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
	args := []any{"what", prefillFailures[t].what, "look_at", prefillFailures[t].look, "since_last", more}
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
		if t, ok := map[kvtransfer.Fault]prefillFailure{
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
