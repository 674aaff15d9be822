package discovery

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch tells when something changed where the file is. It looks at folders
// rather than at the file, so that a rename over the file and a swap of the
// symbolic link that Kubernetes mounts are seen: the file's own folder and,
// when the file is a link, the folder that it leads to.
type watch struct {
	w       *fsnotify.Watcher
	path    string
	folders map[string]bool
}

// newWatch returns nil, and says so, where nothing tells of changes.
func newWatch(path string, o WatchOptions) *watch {
	f, err := tryWatch(path)
	if err != nil {
		o.Log.Warn("file is polled, not watched", "path", path, "every", o.Poll, "error", err)
	}
	return f
}

func tryWatch(path string) (*watch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	f := &watch{w: w, path: path, folders: map[string]bool{}}
	if err := w.Add(filepath.Dir(path)); err != nil {
		w.Close()
		return nil, err
	}
	f.follow()
	return f, nil
}

// follow moves the second watch to where the link leads at this moment. A nil
// watch has nothing to move.
func (f *watch) follow() {
	if f == nil {
		return
	}
	want := map[string]bool{}
	if target, err := filepath.EvalSymlinks(f.path); err == nil {
		if dir := filepath.Dir(target); dir != filepath.Dir(f.path) {
			want[dir] = true
		}
	}
	for dir := range f.folders {
		if !want[dir] {
			_ = f.w.Remove(dir) // it may be gone with its folder
			delete(f.folders, dir)
		}
	}
	for dir := range want {
		if err := f.w.Add(dir); err == nil {
			f.folders[dir] = true
		}
	}
}

// WatchOptions tune Watch. The zero value is usable.
type WatchOptions struct {
	Poll   time.Duration // look this often even if nothing says that something changed; 0 means 10 s
	Settle time.Duration // quiet time after a change before a look; 0 means 100 ms
	Log    *slog.Logger  // nil discards
}

// maxSettle bounds how many quiet times other files of the folder, which
// change without end, can put a look off.
const maxSettle = 10

// Watch calls look, on the caller's goroutine, whenever the file at path may
// have changed: it was written, another one was renamed over it, or a symbolic
// link on the way to it was swapped. It also calls look once at the beginning
// and every Poll, and returns when ctx ends.
func Watch(ctx context.Context, path string, o WatchOptions, look func()) {
	o.Poll, o.Settle = cmp.Or(o.Poll, defaultPoll), cmp.Or(o.Settle, defaultSettle)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := newWatch(path, o)
	look()
	w.run(ctx, o, look)
}

// run calls look whenever the file may have changed and every Poll, until ctx
// ends, and closes f. A nil watch polls.
func (f *watch) run(ctx context.Context, o WatchOptions, look func()) {
	var changes <-chan fsnotify.Event
	var faults <-chan error
	if f != nil {
		defer f.w.Close()
		changes, faults = f.w.Events, f.w.Errors
	}
	poll := time.NewTicker(o.Poll)
	defer poll.Stop()
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	defer settle.Stop()
	for put := 0; ; {
		select {
		case <-ctx.Done():
			return
		case err := <-faults: // an overflow, for example: changes may have been lost
			o.Log.Warn("could not watch a file", "path", f.path, "error", err)
			settle.Reset(o.Settle)
		case <-changes:
			if put < maxSettle {
				settle.Reset(o.Settle)
			}
			put++
		case <-settle.C:
			put = 0
			f.follow()
			look()
		case <-poll.C:
			f.follow()
			look()
		}
	}
}
