package corpus

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

//go:embed shapes
var files embed.FS

// Outcome is the result of loading a shape.
type Outcome string

// Outcomes.
const (
	Loads    Outcome = "loads"    // accepted; decisions follow the same rules
	Replaced Outcome = "replaced" // refused; every problem has a replacement and what is lost
	Faulty   Outcome = "faulty"   // refused, by other pickers too
	Unknown  Outcome = "unknown"  // refused without a replacement
)

// Shape is one configuration of the corpus.
type Shape struct {
	Name   string
	Source string // repository
	Date   time.Time
	Want   Outcome
	Text   string
	Fleet  string // file of the fleet for decisions
}

// Shapes returns all shapes in the order of the files.
func Shapes() ([]Shape, error) {
	names, err := fs.Glob(files, "shapes/*.txt")
	if err != nil {
		return nil, err
	}
	var all []Shape
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		shapes, err := parse(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(name), err)
		}
		all = append(all, shapes...)
	}
	return all, nil
}

// parse reads blocks that start with a line "shape NAME KEY=VALUE…" and end before a line "----".
func parse(text string) (all []Shape, err error) {
	for block := range strings.SplitSeq("\n"+text, "\nshape ") {
		head, rest, _ := strings.Cut(block, "\n")
		body, _, ok := strings.Cut(rest, "----\n")
		if !ok {
			continue // the comment before the first shape
		}
		s := Shape{Text: body, Fleet: "fleet"}
		for i, word := range strings.Fields(head) {
			key, value, _ := strings.Cut(word, "=")
			switch {
			case i == 0:
				s.Name = word
			case key == "date":
				if s.Date, err = time.Parse(time.DateOnly, value); err != nil {
					return nil, fmt.Errorf("shape %s: %w", s.Name, err)
				}
			case key == "source":
				s.Source = value
			case key == "expect":
				s.Want = Outcome(value)
			default:
				s.Fleet = word
			}
		}
		if s.Date.IsZero() || s.Source == "" || s.Want == "" {
			return nil, fmt.Errorf("shape %s: date, source and expect are required", s.Name)
		}
		all = append(all, s)
	}
	return all, nil
}

// Result is the outcome of one shape.
type Result struct {
	Shape
	Got      Outcome
	Problems []strict.Problem
	Notes    []strict.Problem
}

// Check loads the shape. A shape that is expected to be faulty is so however it is refused.
func (s Shape) Check() Result {
	c, problems := config.Parse(s.Name, []byte(s.Text), config.Options{Table: pd.Table()})
	r := Result{Shape: s, Got: Replaced, Problems: problems}
	if c != nil {
		r.Got, r.Notes = Loads, c.Notes
		return r
	}
	for _, p := range problems {
		if !strings.Contains(p.Hint, plugin.LostMark) {
			r.Got = Unknown
		}
	}
	if s.Want == Faulty {
		r.Got = Faulty
	}
	return r
}
