package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// bootstraps caches the ranks of prefill engines until one of their legs fails, because a restarted
// engine has other ids.
type bootstraps struct {
	mu    sync.Mutex
	known map[string]map[string]string // by target: engine id by rank
}

// Limits for bootstrap server queries.
const (
	queryTime     = 5 * time.Second
	maxQuery      = 1 << 20
	maxBootstraps = 4096
)

var errRanks = errors.New("sidecar: the bootstrap server names no ranks")

func (b *bootstraps) forget(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, target)
}

// ranks returns the engine ids of a target's ranks.
func (x *exchange) ranks(target, bootstrap string) (map[string]string, error) {
	b := &x.s.boots
	b.mu.Lock()
	ids := b.known[target]
	b.mu.Unlock()
	if ids != nil {
		return ids, nil
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), queryTime)
	defer cancel()
	u, err := url.Parse(bootstrap + "/query")
	if err != nil {
		return nil, err
	}
	resp, err := x.s.o.Transport.RoundTrip((&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxQuery))
	if err != nil {
		return nil, err
	}
	var page map[string]struct {
		EngineID string `json:"engine_id"`
	}
	if err := json.Unmarshal(text, &page); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %d, %w", errRanks, resp.StatusCode, err)
	}
	ids = map[string]string{}
	for rank, r := range page {
		if _, err := strconv.Atoi(rank); err == nil && r.EngineID != "" {
			ids[rank] = r.EngineID
		}
	}
	if len(ids) == 0 {
		return nil, errRanks
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBootstraps {
		b.known = map[string]map[string]string{}
	}
	b.known[target] = ids
	return ids, nil
}

// byMooncake serves a request by two simultaneous legs with a common id. The bootstrap server
// returns the prefill engine's ranks.
func (x *exchange) byMooncake() {
	x.inTurn(func(target string) (legs, error) {
		host, _, err := net.SplitHostPort(target)
		if err != nil {
			return legs{}, err
		}
		bootstrap := "http://" + net.JoinHostPort(host, strconv.Itoa(x.s.o.BootstrapPort))
		ids, err := x.ranks(target, bootstrap)
		if err != nil {
			return legs{}, err
		}
		ranks := slices.Sorted(maps.Keys(ids))
		rank := ranks[x.s.o.Random()%uint64(len(ranks))]
		id := quote("xfer-" + x.s.o.UUID())
		return legs{
			target: target,
			prefill: x.api.PrefillBody(&x.body, kvtransfer.Edit{Key: keyKVTransfer, Value: object(
				"do_remote_prefill", []byte("false"), "do_remote_decode", []byte("true"), "transfer_id", id)}),
			prefillHeader: http.Header{"X-Data-Parallel-Rank": {rank}},
			set: object("do_remote_prefill", []byte("true"), "do_remote_decode", []byte("false"), "transfer_id", id,
				"remote_bootstrap_addr", quote(bootstrap), "remote_engine_id", quote(ids[rank])),
			needs: true, reportsCached: true,
			afterPrefillOf: func(p *prefilled) {
				if p.fault != kvtransfer.NoFault || p.rejected {
					x.s.boots.forget(target)
				}
			},
		}, nil
	})
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // encoding a string cannot fail
	return b
}

// object returns a JSON object of alternating keys and values.
func object(pairs ...any) []byte {
	out := []byte{'{'}
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, quote(pairs[i].(string))...), ':')
		out = append(out, pairs[i+1].([]byte)...)
	}
	return append(out, '}')
}
