package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/blockhash"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
)

var leaseNumber atomic.Uint64

// Paths of the side channel between engines. Real engines use a separate socket, which also carries
// the blocks.
const (
	pathRead = "/side/read"
	pathDone = "/side/done"
)

// sideMessage names a lease.
type sideMessage struct {
	Engine  string `json:"engine_id"`
	Request string `json:"request_id"`
}

// readBlocks returns the content stamp of a transfer's blocks. Like a remote memory read, it
// succeeds for any block of the engine, independent of the request that holds it.
func (e *Engine) readBlocks(w *responder, r *http.Request) {
	var m sideMessage
	if !w.decode(r, &m) {
		return
	}
	if m.Engine != w.st.id {
		w.fail(&apiError{http.StatusConflict, errInternal, "handshake mismatch", ""})
		return
	}
	for _, c := range w.st.cores {
		if stamp := c.Read(m.Request); stamp != 0 {
			w.send(http.StatusOK, map[string]uint64{"stamp": stamp})
			return
		}
	}
	w.send(http.StatusOK, map[string]uint64{"stamp": 0})
}

// doneBlocks ends a lease.
func (e *Engine) doneBlocks(w *responder, r *http.Request) {
	var m sideMessage
	if !w.decode(r, &m) {
		return
	}
	found := false
	for _, c := range w.st.cores {
		found = c.End(m.Request) || found
	}
	if !found {
		w.st.cores[0].Late()
	}
	w.send(http.StatusOK, struct{}{})
}

var (
	errLoad   = errors.New("sim: the prompt's blocks did not come")
	errKilled = errors.New("sim: assertion failed: remote_block_ids has no group")
)

// sideChannel is the client of other engines' side channels.
var sideChannel = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Second}}

// pull fetches the blocks of a prompt that another engine has computed. It returns
// whether they are that prompt's.
func (c *call) pull(ctx context.Context, p *prompt, salt blockhash.Extra) (right bool, err error) {
	h, o := c.p.KV, c.engine.opt.PD
	if ids := string(h.BlockIDs); ids == "" || ids == "null" || ids == "[]" {
		return false, errKilled
	}
	if h.RequestID == nil || h.EngineID == nil || h.Host == nil || h.Port == nil {
		<-ctx.Done() // the request waits forever
		return false, ctx.Err()
	}
	defer c.notify()
	shake, cancel := context.WithTimeout(ctx, o.Handshake)
	defer cancel()
	body, err := side(shake, h, pathRead)
	if err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		c.core.Failed()
		return false, fmt.Errorf("%w: %w", errLoad, err)
	}
	var read struct {
		Stamp uint64 `json:"stamp"`
	}
	if err := json.Unmarshal(body, &read); err != nil {
		return false, fmt.Errorf("%w: %w", errLoad, err)
	}
	size := c.engine.opt.Core.BlockSize
	held := c.core.Cached(c.engine.opt.Namer.Append(nil, p.tokens, size, salt))
	move := time.NewTimer(o.moves(len(p.tokens)-held*size, c.core.Speed()))
	defer move.Stop()
	select {
	case <-move.C:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	right = read.Stamp == core.StampOf(p.tokens)
	if !right {
		c.core.Wrong()
	}
	return right, nil
}

// notify reports to the engine that computed the prompt that its blocks can be released.
func (c *call) notify() {
	h := c.p.KV
	if !h.pulls() || h.RequestID == nil || h.EngineID == nil || h.Host == nil || h.Port == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.engine.opt.PD.Handshake)
	defer cancel()
	_, _ = side(ctx, h, pathDone) // it may be gone
}

// side sends a request to another engine over the side channel.
func side(ctx context.Context, h *kvTransfer, path string) ([]byte, error) {
	body, _ := json.Marshal(sideMessage{*h.EngineID, *h.RequestID}) // text always encodes
	url := "http://" + net.JoinHostPort(*h.Host, strconv.Itoa(*h.Port)) + path
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := sideChannel.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return out.Bytes(), nil
}

// Transfers returns the figures of the engine's KV transfers; none while it is down.
func (e *Engine) Transfers() (sum core.TransferStats) {
	st := e.current()
	if st == nil {
		return sum
	}
	for _, c := range st.cores {
		s := c.Transfers()
		sum.Held += s.Held
		sum.Read += s.Read
		sum.Expired += s.Expired
		sum.Late += s.Late
		sum.Failed += s.Failed
		sum.Wrong += s.Wrong
	}
	return sum
}
