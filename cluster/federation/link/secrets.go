package link

import (
	"encoding/hex"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// secrets are those of the federation: one, and a second one while it is exchanged. The
// fields are guarded by the link's mu.
type secrets struct {
	use, also *filter.Secret
	text      string // of the file
	err       error  // of the last look; what was read before goes on being used
}

// hotKey names a set of hot prefixes: those of a pool, by keys of one secret.
type hotKey struct {
	pool   federation.PoolKey
	secret *filter.Secret
}

// secretsPause is how seldom the file of secrets is read again.
const secretsPause = 2 * time.Second

// watchSecrets reads the file of secrets again and again.
func (l *Link) watchSecrets() {
	t := time.NewTicker(secretsPause)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
			_ = l.Reload() // it is logged, and shown
		}
	}
}

// Reload reads the federation's secrets again, if their file has changed. Those that cannot
// be read leave the ones before in use. A federation that was opened without a file has none.
func (l *Link) Reload() error {
	file := l.o.Config.SecretFile
	if file == "" {
		return nil
	}
	use, also, text, err := readSecrets(file)
	l.do(func(time.Time) []federation.Send {
		s := &l.secrets
		was := s.err
		if s.err = err; err != nil {
			if was == nil || was.Error() != err.Error() {
				l.o.Log.Warn("the federation's secrets cannot be read, those before stay", "error", err)
			}
			return nil
		}
		if text != s.text {
			s.text = text
			l.exchange(use, also)
		}
		return nil
	})
	return err
}

// exchange replaces the secrets. Calls hold l.mu.
func (l *Link) exchange(use, also *filter.Secret) {
	l.core.SetSecrets(use, also)
	v := l.core.View(time.Now())
	s := &l.secrets
	s.use, s.also = v.Secret, v.Also
	pools := map[federation.PoolKey]bool{}
	for k := range l.hot {
		if pools[k.pool] = true; k.secret != s.use && k.secret != s.also {
			delete(l.hot, k)
		}
	}
	for pool := range pools { // what is told next is by keys of what is in use next
		l.hotOf(pool, s.use)
	}
	l.o.Log.Info("the federation's secrets were read again", "in_use", nameOf(s.use), "another", s.also != nil)
}

// nameOf returns a short name of a secret, from which nothing can be learned of it.
func nameOf(s *filter.Secret) string {
	id := s.ID()
	return hex.EncodeToString(id[:4])
}

// problem says why the file cannot be read now.
func (s *secrets) problem() string {
	if s.err == nil {
		return ""
	}
	return s.err.Error()
}

// Hot returns the set of a pool's hot prefixes, by keys of the secret in use. It is made
// when it is asked for first.
func (l *Link) Hot(pool federation.PoolKey) *filter.Hot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hotOf(pool, l.secrets.use)
}

// HotOf returns the set by keys of a secret of the view, nil when that is good no more.
func (l *Link) HotSet(pool federation.PoolKey, s *filter.Secret) *filter.Hot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == nil || s != l.secrets.use && s != l.secrets.also {
		return nil
	}
	return l.hotOf(pool, s)
}

// hotOf makes a set when there is none. Calls hold l.mu.
func (l *Link) hotOf(pool federation.PoolKey, s *filter.Secret) *filter.Hot {
	k := hotKey{pool, s}
	h := l.hot[k]
	if h == nil {
		blocks := l.o.Config.Blocks
		if blocks == 0 {
			blocks = defaultBlocks
		}
		h = filter.NewHot(blocks)
		l.hot[k] = h
		l.core.SetHotOf(pool, s, h)
	}
	return h
}

const defaultBlocks = 1_000_000
