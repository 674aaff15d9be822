package top

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
)

// Options configure a session.
type Options struct {
	Addresses []string      // admin addresses of replicas
	Pool      string        // of replicas that serve several; "": they serve one
	Interval  time.Duration // between readings
	Screen    tcell.Screen  // nil: the terminal
}

// Once reads twice, an interval apart, and writes one frame with all endpoints as plain text of that
// width. It returns whether any replica answered.
func Once(ctx context.Context, w io.Writer, o Options, width int) (answered bool, err error) {
	var h history
	h.add(read(ctx, o.Addresses, o.Pool))
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(o.Interval):
	}
	b := h.add(read(ctx, o.Addresses, o.Pool))
	_, err = io.WriteString(w, text(b.frame(&state{selected: -1}, width, 0)))
	return b.answered > 0, err
}

// Run draws the group on a screen until the user quits or ctx ends.
func Run(ctx context.Context, o Options) (err error) {
	screen := o.Screen
	if screen == nil {
		if screen, err = tcell.NewScreen(); err != nil {
			return err
		}
	}
	if err := screen.Init(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	events, boards := make(chan tcell.Event, 16), make(chan *board)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { screen.ChannelEvents(events, quit) })
	wg.Go(func() { poll(ctx, o, boards) })
	defer func() {
		cancel()
		close(quit)
		screen.Fini()
		wg.Wait()
	}()
	v := view{screen: screen, colours: os.Getenv("NO_COLOR") == "", state: state{live: true}}
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-boards:
			v.latest = b
			if !v.state.paused {
				v.board = b
			}
		case e, ok := <-events:
			if !ok {
				return nil
			}
			switch e := e.(type) {
			case *tcell.EventResize:
				screen.Sync()
			case *tcell.EventKey:
				if v.key(e) {
					return nil
				}
			}
		}
		v.draw()
	}
}

// poll reads until ctx ends.
func poll(ctx context.Context, o Options, boards chan<- *board) {
	var h history
	for {
		b := h.add(read(ctx, o.Addresses, o.Pool))
		select {
		case <-ctx.Done():
			return
		case boards <- b:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(o.Interval):
		}
	}
}

// view is what a session shows.
type view struct {
	screen  tcell.Screen
	colours bool
	state   state
	board   *board // nil before the first reading
	latest  *board // differs while paused
}

// key handles a key, and reports whether the user quits.
func (v *view) key(e *tcell.EventKey) (quit bool) {
	s := &v.state
	if e.Key() == tcell.KeyCtrlC {
		return true
	}
	if s.typing {
		v.typed(e)
		return false
	}
	_, height := v.screen.Size()
	switch e.Key() {
	case tcell.KeyUp:
		s.move(-1)
	case tcell.KeyDown:
		s.move(1)
	case tcell.KeyPgUp:
		s.move(-height / 2)
	case tcell.KeyPgDn:
		s.move(height / 2)
	case tcell.KeyHome:
		s.selected = 0
	case tcell.KeyEnd:
		s.move(1 << 30)
	case tcell.KeyEscape:
		s.help, s.filter = false, ""
	case tcell.KeyRune:
		return v.handleKey(e.Rune())
	default:
	}
	return false
}

// handleKey handles a key with a letter.
func (v *view) handleKey(r rune) (quit bool) {
	s := &v.state
	switch r {
	case 'q':
		return true
	case 'j':
		s.move(1)
	case 'k':
		s.move(-1)
	case 'g':
		s.selected = 0
	case 'G':
		s.move(1 << 30)
	case 's':
		s.sort = (s.sort + 1) % len(sortings)
	case 'S':
		s.sort = (s.sort + len(sortings) - 1) % len(sortings)
	case '/':
		s.typing, s.help = true, false
	case 'p', ' ':
		if s.paused = !s.paused; !s.paused {
			v.board = v.latest
		}
	case '?':
		s.help = !s.help
	}
	return false
}

// typed handles a key while the filter is typed.
func (v *view) typed(e *tcell.EventKey) {
	s := &v.state
	switch e.Key() {
	case tcell.KeyEnter:
		s.typing = false
	case tcell.KeyEscape:
		s.typing, s.filter = false, ""
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if r := []rune(s.filter); len(r) > 0 {
			s.filter = string(r[:len(r)-1])
		}
	case tcell.KeyRune:
		s.filter += string(e.Rune())
	default:
	}
}

// move moves the selection. The frame limits it to the shown endpoints.
func (s *state) move(by int) { s.selected = max(s.selected+by, 0) }

// tcellStyle returns the style on a screen. Without colours, urgent text is bold.
func (v *view) tcellStyle(s style) tcell.Style {
	base := tcell.StyleDefault
	colour := func(c tcell.Color) tcell.Style {
		if v.colours {
			return base.Foreground(c)
		}
		return base
	}
	switch s {
	case strong:
		return base.Bold(true)
	case dim:
		return base.Dim(true)
	case good:
		return colour(tcell.ColorGreen)
	case warn:
		return colour(tcell.ColorYellow)
	case bad:
		return colour(tcell.ColorRed).Bold(true)
	case heading, selected:
		return base.Reverse(true)
	default:
		return base
	}
}

// draw draws the present frame.
func (v *view) draw() {
	width, height := v.screen.Size()
	var frame []line
	if v.board == nil {
		frame = []line{{{fit("grapevine top: waiting for an answer", width, false), plain}}}
	} else {
		frame = v.board.frame(&v.state, width, height)
	}
	v.screen.Clear()
	for y, l := range frame {
		x := 0
		for _, s := range l {
			st := v.tcellStyle(s.style)
			clusters(s.text, func(c string, w int) bool {
				r := []rune(c)
				v.screen.SetContent(x, y, r[0], r[1:], st)
				x += w
				return x < width
			})
		}
	}
	v.screen.Show()
}
