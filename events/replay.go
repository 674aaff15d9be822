package events

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/grapevine-epp/grapevine/events/zmtp"
)

// replayBuffer is the socket buffer of a replay. An engine's ROUTER drops data that exceeds its own
// queue.
const replayBuffer = 4 << 20

// maxCoolDowns bounds how often the pause after a failed replay doubles.
const maxCoolDowns = 8

var errReplay = errors.New("events: malformed replay")

// startReplay starts an attempt and ends the previous one. The caller holds mu.
func (s *subscriber) startReplay(attempt uint32, from uint64) {
	s.stopReplay()
	ctx, cancel := context.WithCancel(s.ctx)
	s.cancelReplay = cancel
	wait := s.m.opt.Settle - time.Since(s.connectedAt)
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer cancel()
		s.replay(ctx, attempt, from, wait)
	}()
}

// stopReplay cancels the current attempt without waiting. The caller holds mu.
func (s *subscriber) stopReplay() {
	if s.cancelReplay != nil {
		s.cancelReplay()
		s.cancelReplay = nil
	}
}

// replay runs one attempt. wait gives the subscription time to take effect first, so that batches are
// rarely missed between replay and stream. A slow publisher can take longer; see [order.Order.Checks].
func (s *subscriber) replay(ctx context.Context, attempt uint32, from uint64, wait time.Duration) {
	if wait > 0 && !sleep(ctx, wait) {
		return
	}
	select {
	case s.m.slots <- struct{}{}:
		defer func() { <-s.m.slots }()
	case <-ctx.Done():
		return
	}
	s.m.metrics.replaying.Inc()
	defer s.m.metrics.replaying.Dec()
	err := s.fetch(ctx, attempt, from)
	if ctx.Err() != nil {
		return // superseded or stopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.failure.replay.Store(nil)
		s.m.metrics.replays.WithLabelValues(resultOK).Inc()
		s.do(s.order.ReplayEnded(attempt))
		return
	}
	s.failed++
	s.m.metrics.replays.WithLabelValues(resultFailed).Inc()
	level := slog.LevelDebug
	if s.failed == 1 {
		level = slog.LevelWarn
	}
	s.log.Log(s.ctx, level, "replay failed", "replay", s.at.Replay, "from", from, "err", err)
	note(&s.failure.replay, "replay from "+s.at.Replay+" failed", err)
	s.do(s.order.ReplayFailed(attempt))
}

// fetch requests the batches from a number on and passes them on until the end marker.
func (s *subscriber) fetch(ctx context.Context, attempt uint32, from uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.m.opt.ReplayTotal)
	defer cancel()
	conn, err := zmtp.Dial(ctx, s.at.Replay, zmtp.Options{
		Socket: zmtp.DEALER, Heartbeat: -1, Handshake: s.m.opt.Handshake, ReadBuffer: replayBuffer,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	var m zmtp.Message
	for {
		conn.SetRecvDeadline(time.Now().Add(s.m.opt.ReplayIdle))
		if err := conn.Recv(&m); err != nil {
			return err
		}
		seq, payload, ok := parseBatch(&m)
		switch {
		case !ok:
			return errReplay
		case seq == endMarker:
			return nil
		}
		s.replayed(attempt, seq, payload)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (s *subscriber) replayed(attempt uint32, seq uint64, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaying = true
	s.do(s.order.Replayed(attempt, seq, payload))
	s.replaying = false
}

// schedule schedules the next Order.Timeout if one is due. The caller holds mu. A replay that
// leaves verified data resets the failure count. Pauses between checks of a connection without
// batches grow fourfold.
func (s *subscriber) schedule() {
	o := s.order
	if !o.NeedsTimeout() {
		if o.IsLive() && !o.Suspect() {
			s.failed = 0
		}
		return
	}
	if s.retry != nil {
		return
	}
	pause := s.m.opt.CoolDown << min(max(s.failed, 1)-1, maxCoolDowns)
	switch done, due := o.Checks(); {
	case due:
		pause = s.m.opt.CoolDown << (2 * done)
	case o.IsLive():
		s.failed++ // a replay has just left suspect data
	}
	s.wg.Add(1)
	s.retry = time.AfterFunc(pause, func() {
		defer s.wg.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retry = nil
		s.do(s.order.Timeout())
	})
}
