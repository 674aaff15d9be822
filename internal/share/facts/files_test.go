package facts

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// openFiles returns n replicas, each with a file of its own content. drop, if not nil, returns true
// for a direct message that is lost.
func openFiles(t *testing.T, n int, drop func(from, to int) bool) []*Files {
	t.Helper()
	var gauges []cluster.GaugeSink
	var directs []cluster.DirectSink
	var all []*Files
	for i := range n {
		g := Group{
			Gauge: func(_ string, _ uint64, sink cluster.GaugeSink) SetFunc {
				gauges = append(gauges, sink)
				return func(key string, value []byte) error {
					for k, s := range gauges {
						if k != i {
							if err := s.Merge(fmt.Sprint("m", i), StateVersion, key, value); err != nil {
								t.Error(err)
							}
						}
					}
					return nil
				}
			},
			Direct: func(_ string, _ uint64, sink cluster.DirectSink) SendToFunc {
				directs = append(directs, sink)
				return func(member string, payload []byte) bool {
					for k, s := range directs {
						if member != fmt.Sprint("m", k) {
							continue
						}
						if drop == nil || !drop(i, k) {
							if err := s.Deliver(fmt.Sprint("m", i), StateVersion, bytes.Clone(payload)); err != nil {
								t.Error(err)
							}
						}
						return true
					}
					return false
				}
			},
		}
		all = append(all, NewFiles(FilesOptions{Group: g, Now: time.Now, Log: slog.New(slog.DiscardHandler), Read: func(p FilePage) ([]byte, bool) {
			if p.Name != "tokenizer.json" {
				return nil, false
			}
			return fmt.Appendf(nil, "%s of m%d at %d", p.Repo, i, p.Offset), true
		}}))
	}
	for _, x := range all {
		go x.Run(t.Context())
	}
	return all
}

// TestFilesPages: a page comes from the named replica. Lost messages are repeated a few times; refusals
// and unreachable replicas are reported at once.
func TestFilesPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		all := openFiles(t, 3, func(from, to int) bool { lost--; return lost >= 0 })
		p := FilePage{Repo: "org/m", Commit: "c", Name: "tokenizer.json", Offset: 7}
		for _, c := range []struct {
			member, name string
			lost         int
			want         string
			err          error
			took         time.Duration
		}{
			{"m1", "tokenizer.json", 0, "org/m of m1 at 7", nil, 0},
			{"m2", "tokenizer.json", 2, "org/m of m2 at 7", nil, 2 * pageTimeout},
			{"m2", "tokenizer.json", 99, "", ErrPageLost, pageTries * pageTimeout},
			{"m2", "config.json", 0, "", ErrPageRefused, 0},
			{"m9", "tokenizer.json", 0, "", ErrPageLost, 0},
		} {
			lost = c.lost
			p.Name = c.name
			begun := time.Now()
			b, err := all[0].Page(t.Context(), c.member, p)
			if string(b) != c.want || !errors.Is(err, c.err) || time.Since(begun) != c.took {
				t.Errorf("Page(%s, %s) with %d lost = %q, %v after %s, want %q, %v after %s", c.member, c.name, c.lost, b, err, time.Since(begun), c.want, c.err, c.took)
			}
		}
		if n := len(all[0].open); n > 0 {
			t.Errorf("%d requests are still open, want none", n)
		}
	})
}

// TestFilesAnswerOfAnother: an answer counts only if the replica that was asked sent it.
func TestFilesAnswerOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := openFiles(t, 2, func(int, int) bool { return true })
		done := make(chan error)
		go func() {
			_, err := all[0].Page(t.Context(), "m1", FilePage{})
			done <- err
		}()
		synctest.Wait()
		forged := append(appendNonce(wireAnswer, all[0].next, 1), 'x')
		if err := (pageSink{all[0]}).Deliver("m7", StateVersion, forged); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrPageLost) {
			t.Errorf("Page() = %v after an answer of another replica, want %v", err, ErrPageLost)
		}
	})
}

// TestFilesClaims: claims arrive at the others, change, and disappear with their replica. Each change
// is reported.
func TestFilesClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := openFiles(t, 2, nil)
		a, b := all[0], all[1]
		synctest.Wait()
		if !a.Present("m1") || a.Present("m9") {
			t.Error("Present() does not report the other replica, or another")
		}
		offer := claims.Claim{Stage: claims.Ready, Commit: "c", Files: []claims.File{{Name: "tokenizer.json", Bytes: 3, SHA256: strings.Repeat("ab", 32)}}}
		for _, c := range []*claims.Claim{{Stage: claims.Wanted}, &offer, nil} {
			changed := a.Changed()
			b.Publish("org/m", "main", c)
			b.Publish("org/other", "main", c)
			select {
			case <-changed:
			default:
				t.Error("Changed() does not report the change of a claim")
			}
			var want []claims.Peer
			if c != nil {
				want = []claims.Peer{{Member: "m1", Revision: "main", At: time.Now(), Claim: *c}}
			}
			if got := a.Claims("org/m"); !reflect.DeepEqual(got, want) {
				t.Errorf("Claims() = %+v, want %+v", got, want)
			}
		}
		b.Publish("org/m", "main", &offer)
		changed := a.Changed()
		a.Drop("m1")
		if len(a.Claims("org/m")) > 0 || a.Present("m1") {
			t.Error("claims of a dropped replica are still there")
		}
		select {
		case <-changed:
		default:
			t.Error("Changed() does not report a dropped replica")
		}
	})
}

// TestFilesBounded: a peer's claims are bounded, and a malformed claim is an error that removes the
// claim it replaces.
func TestFilesBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := openFiles(t, 1, nil)[0]
		good := (&claims.Claim{Stage: claims.Wanted}).Append(nil)
		for i := range maxClaims + 1 {
			if err := x.Merge("m1", StateVersion, claimKey("org/m", fmt.Sprint(i)), good); (err != nil) != (i == maxClaims) {
				t.Errorf("claim %d: %v, want an error only beyond %d", i, err, maxClaims)
			}
		}
		if err := x.Merge("m1", StateVersion, claimKey("org/m", "0"), []byte{99}); err == nil || len(x.Claims("org/m")) != maxClaims-1 {
			t.Errorf("malformed claim: %v and %d claims, want an error and %d", err, len(x.Claims("org/m")), maxClaims-1)
		}
	})
}

// FuzzPages decodes any direct message. Accepted requests are bounded.
func FuzzPages(f *testing.F) {
	f.Add((&FilePage{"org/m", "c", "tokenizer.json", 7}).append(appendNonce(wireInquiry, 1, 0)))
	f.Add(append(appendNonce(wireAnswer, 1, 1), 'x'))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		x := &Files{asked: make(chan pageAsk, 1), open: map[uint64]pageWait{}}
		if (pageSink{x}).Deliver("m1", StateVersion, b) != nil || len(x.asked) == 0 {
			return
		}
		if p := (<-x.asked).page; len(p.Repo) > maxFileName || len(p.Commit) > maxFileName || len(p.Name) > maxFileName || p.Offset < 0 {
			t.Errorf("accepted %+v", p)
		}
	})
}
