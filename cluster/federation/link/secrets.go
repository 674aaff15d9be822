package link

import (
	"encoding/hex"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// secrets are the federation's secrets: one, and a second one during a rotation. The link's mu
// guards the fields.
type secrets struct {
	use, also *filter.Secret
	text      string // content of the file
	err       error  // of the last check; the previous content stays in use
}

// hotKey identifies the set of hot prefixes of a pool, keyed by one secret.
type hotKey struct {
	pool   federation.PoolKey
	secret *filter.Secret
}

// secretsPause is the time between checks of the secrets file.
const secretsPause = 2 * time.Second

// watchSecrets checks the secrets file periodically.
func (l *Link) watchSecrets() {
	t := time.NewTicker(secretsPause)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
			_ = l.Reload() // logged, and shown in status
		}
	}
}

// Reload rereads the federation's secrets if their file has changed. If that fails, the previous
// secrets stay in use. It does nothing for a federation opened without a file.
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
				l.o.Log.Warn("reading the federation's secrets failed, keeping the previous ones", "error", err)
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

// exchange replaces the secrets. The caller holds l.mu.
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
	for pool := range pools { // the next filters use keys of the new secret
		l.hotOf(pool, s.use)
	}
	l.o.Log.Info("federation secrets reloaded", "in_use", nameOf(s.use), "another", s.also != nil)
}

// nameOf returns a short name of a secret that does not reveal it.
func nameOf(s *filter.Secret) string {
	id := s.ID()
	return hex.EncodeToString(id[:4])
}

// problem returns why the file cannot be read, or "".
func (s *secrets) problem() string {
	if s.err == nil {
		return ""
	}
	return s.err.Error()
}

// Hot returns a pool's hot prefixes, keyed by the secret in use. The set is created on first use.
func (l *Link) Hot(pool federation.PoolKey) *filter.Hot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hotOf(pool, l.secrets.use)
}

// HotSet returns the set keyed by a secret of the view, or nil if that secret is no longer accepted.
func (l *Link) HotSet(pool federation.PoolKey, s *filter.Secret) *filter.Hot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == nil || s != l.secrets.use && s != l.secrets.also {
		return nil
	}
	return l.hotOf(pool, s)
}

// hotOf creates a set if there is none. The caller holds l.mu.
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
