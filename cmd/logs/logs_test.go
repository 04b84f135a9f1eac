package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestTextLines(t *testing.T) {
	var out bytes.Buffer
	log, _ := New(Options{Writer: &out, Levels: NewLevels()})
	log.Info("no attributes")
	log.With("scope", "ads", "conn", "web-1.a-3").Warn("rejected", "type", "LDS", "err", errors.New("two words"))
	log.WithGroup("g").Info("grouped", "level", 3)
	log.Debug("not shown")
	stamp := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`)
	want := "T\tinfo\tno attributes\n" +
		"T\twarn\tads\trejected\tconn=web-1.a-3 type=LDS err=\"two words\"\n" +
		"T\tinfo\tgrouped\tg.level=3\n"
	if got := stamp.ReplaceAllString(out.String(), "T"); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	log, _ := New(Options{Writer: &out, JSON: true, Levels: NewLevels()})
	log.With("scope", "ads").Info("pushed", "type", "CDS", "dur", 1500*time.Millisecond)
	var got map[string]any
	must.Succeed(t, json.Unmarshal(out.Bytes(), &got))
	for k, v := range map[string]any{"level": "info", "scope": "ads", "msg": "pushed", "type": "CDS", "dur": "1.5s"} {
		if got[k] != v {
			t.Errorf("%s: got %v, want %v", k, got[k], v)
		}
	}
	if s, _ := got["time"].(string); !strings.HasSuffix(s, "Z") {
		t.Errorf("time: %v", got["time"])
	}
}

// Levels act on loggers that exist already, and a scope set by name keeps its level when the default changes.
func TestLevels(t *testing.T) {
	var out bytes.Buffer
	levels := NewLevels()
	log, _ := New(Options{Writer: &out, Levels: levels})
	ads, model := log.With("scope", "ads"), log.With("scope", "model")
	shown := func(l *slog.Logger) bool {
		out.Reset()
		l.Debug("x")
		return out.Len() > 0
	}
	for _, step := range []struct {
		set              string
		base, ads, model bool
	}{
		{"default:info", false, false, false},
		{"ads:debug", false, true, false},
		{"debug", true, true, true},
		{"default:error,model:debug", false, true, true},
		{"all:none", false, false, false},
	} {
		must.Succeed(t, levels.Set(step.set))
		if b, a, m := shown(log), shown(ads), shown(model); b != step.base || a != step.ads || m != step.model {
			t.Errorf("after %s: default %v, ads %v, model %v", step.set, b, a, m)
		}
	}
	if err := levels.Set("ads:debug,model:loud"); err == nil || levels.All()["ads"] != "none" {
		t.Errorf("a wrong level was taken in part: %v, %v", err, levels.All())
	}
}

// A panic is counted by name even where the level hides the line.
func TestPanicsAreCounted(t *testing.T) {
	var out bytes.Buffer
	levels := NewLevels()
	log, l := New(Options{Writer: &out, Levels: levels})
	must.Succeed(t, levels.Set("all:none"))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { safe.Run(log, "owner", func() { panic("boom") }) })
	}
	wg.Wait()
	log.Error("an ordinary error", "err", errors.New("x"))
	if got := l.Panics(); got["owner"] != 3 || len(got) != 1 || out.Len() != 0 {
		t.Errorf("counted %v, wrote %q", got, out.String())
	}
}

// Lines name their origin and have a stack trace where that is asked for, and the scopes say so.
func TestCallersAndStacks(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		levels := NewLevels()
		log, _ := New(Options{Writer: &out, JSON: asJSON, Levels: levels})
		ads := log.With("scope", "ads")
		levels.SetCallers("ads")
		must.Succeed(t, levels.SetStack("ads:error"))
		for _, c := range []struct {
			write         func()
			caller, stack bool
		}{
			{func() { log.Error("plain") }, false, false},
			{func() { ads.Info("origin") }, true, false},
			{func() { ads.Error("stack") }, true, true},
		} {
			out.Reset()
			c.write()
			if text := out.String(); strings.Contains(text, "logs/logs_test.go:") != c.caller ||
				strings.Contains(text, "goroutine ") != c.stack || !strings.HasSuffix(text, "\n") {
				t.Errorf("JSON %v: %s", asJSON, text)
			}
			if asJSON && !json.Valid(out.Bytes()) {
				t.Errorf("no JSON: %s", out.String())
			}
		}
		must.Succeed(t, levels.SetScope(Scope{Name: "ads", Level: "debug", StackLevel: "none"}))
		want := []Scope{{"ads", descriptions()["ads"], "debug", "none", false}, {"default", descriptions()["default"], "info", "none", false}}
		if got := levels.Scopes(); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		for _, bad := range []Scope{{Name: "nothing", Level: "info", StackLevel: "none"},
			{Name: "ads", Level: "loud", StackLevel: "none"}, {Name: "ads", Level: "info", StackLevel: "loud"}} {
			if levels.SetScope(bad) == nil {
				t.Errorf("%v is taken", bad)
			}
		}
		if got := levels.Scopes(); !slices.Equal(got, want) {
			t.Errorf("a wrong scope changed something: %v", got)
		}
	}
}
