package trace

import "github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"

// Dependency is something that is not known and may change an answer. In JSON it is its text.
type Dependency struct {
	Text   string          // a sentence that names an object
	Cause  accesslog.Cause // of the other answer; empty if it may be any
	Status int             // of the other answer; 0 if it is not known, or if the connection is closed
}

func (d Dependency) String() string { return d.Text }

// MarshalText returns the text.
func (d Dependency) MarshalText() ([]byte, error) { return []byte(d.Text), nil }

// UnmarshalText takes the text alone.
func (d *Dependency) UnmarshalText(text []byte) error {
	*d = Dependency{Text: string(text)}
	return nil
}
