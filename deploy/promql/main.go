//go:build ignore

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Input holds the queries and the scrapes.
type Input struct {
	Scrapes []Scrape `json:"scrapes"` // of each target in the order of time
	Queries []string `json:"queries"` // instant queries
	At      int64    `json:"at"`      // in milliseconds since 1970; 0 means the time of the last scrape
}

// Scrape is the answer of one target to one scrape.
type Scrape struct {
	At     int64             `json:"at"`
	Labels map[string]string `json:"labels"` // of the target
	Type   string            `json:"type"`   // Content-Type of the answer; empty means Prometheus's text format
	Text   string            `json:"text"`
}

// Answer is the result of one query.
type Answer struct {
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Samples  []Sample `json:"samples"`
}

// Sample is one value. It is a text, because JSON has no infinity.
type Sample struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
}

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	var input Input
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&input); err != nil {
		return fmt.Errorf("read what is asked: %w", err)
	}
	store, last, err := newStore(input.Scrapes)
	if err != nil {
		return err
	}
	if input.At != 0 {
		last = input.At
	}
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 50_000_000, Timeout: 2 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true,
		Parser:               parser.NewParser(parser.Options{}),
	})
	answers := make([]Answer, len(input.Queries))
	for i, q := range input.Queries {
		answers[i] = ask(ctx, engine, store, q, time.UnixMilli(last))
	}
	return json.NewEncoder(out).Encode(answers)
}

// ask evaluates one query.
func ask(ctx context.Context, engine *promql.Engine, store *store, query string, at time.Time) Answer {
	a := Answer{Samples: []Sample{}}
	q, err := engine.NewInstantQuery(ctx, store, nil, query, at)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	defer q.Close()
	r := q.Exec(ctx)
	for _, w := range r.Warnings.AsErrors() {
		a.Warnings = append(a.Warnings, w.Error())
	}
	if r.Err != nil {
		a.Error = r.Err.Error()
		return a
	}
	add := func(l labels.Labels, v float64) { a.Samples = append(a.Samples, Sample{l.Map(), format(v)}) }
	switch v := r.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				add(s.Metric, s.H.Count)
				continue
			}
			add(s.Metric, s.F)
		}
	case promql.Scalar:
		add(labels.EmptyLabels(), v.V)
	default:
		a.Error = fmt.Sprintf("the query returns a %s, not a vector", r.Value.Type())
	}
	return a
}

// format formats a value as Prometheus does.
func format(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
