//go:build ignore

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// store holds the samples of all scrapes, in memory.
type store struct {
	series map[uint64]*series // by the hash of their labels
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample // in the order of time
}

// newStore parses scrapes as Prometheus does, and returns the time of the last one.
func newStore(scrapes []Scrape) (*store, int64, error) {
	s := &store{map[uint64]*series{}}
	var last int64
	for i, scrape := range scrapes {
		if err := s.add(scrape); err != nil {
			return nil, 0, fmt.Errorf("scrape %d of %v: %w", i, scrape.Labels, err)
		}
		last = max(last, scrape.At)
	}
	return s, last, nil
}

// add parses one scrape. If a series has a label of its target, both are kept as Prometheus keeps them.
func (s *store) add(scrape Scrape) error {
	p, err := textparse.New([]byte(scrape.Text), cmp.Or(scrape.Type, "text/plain; version=0.0.4"), nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		v := sample{at: scrape.At}
		switch entry {
		case textparse.EntrySeries:
			_, _, v.float = p.Series()
		case textparse.EntryHistogram:
			_, _, v.histogram, v.floats = p.Histogram()
		default:
			continue
		}
		var own labels.Labels
		p.Labels(&own)
		b := labels.NewBuilder(own)
		for name, value := range scrape.Labels {
			if has := own.Get(name); has != "" {
				b.Set("exported_"+name, has)
			}
			b.Set(name, value)
		}
		all := b.Labels()
		at := s.series[all.Hash()]
		if at == nil {
			at = &series{labels: all}
			s.series[all.Hash()] = at
		}
		if n := len(at.samples); n > 0 && at.samples[n-1].T() >= v.at {
			return fmt.Errorf("%s appears twice, or scrapes are not in the order of time", all)
		}
		at.samples = append(at.samples, v)
	}
}

// sample is one value of one series. It implements chunks.Sample.
type sample struct {
	at        int64
	float     float64
	histogram *histogram.Histogram
	floats    *histogram.FloatHistogram
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.float }
func (s sample) H() *histogram.Histogram       { return s.histogram }
func (s sample) FH() *histogram.FloatHistogram { return s.floats }
func (s sample) Copy() chunks.Sample           { return s }

func (s sample) Type() chunkenc.ValueType {
	switch {
	case s.histogram != nil:
		return chunkenc.ValHistogram
	case s.floats != nil:
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// Querier implements storage.Queryable.
func (s *store) Querier(from, to int64) (storage.Querier, error) {
	return &querier{s, from, to}, nil
}

type querier struct {
	*store
	from, to int64
}

func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, at := range q.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(at.labels.Get(m.Name)) }) {
			continue
		}
		var within []chunks.Sample
		for _, v := range at.samples {
			if v.T() >= q.from && v.T() <= q.to {
				within = append(within, v)
			}
		}
		if len(within) > 0 {
			set.list = append(set.list, storage.NewListSeries(at.labels, within))
		}
	}
	slices.SortFunc(set.list, func(x, y storage.Series) int { return labels.Compare(x.Labels(), y.Labels()) })
	return set
}

func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("label values are not asked for by queries")
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("label names are not asked for by queries")
}

func (q *querier) Close() error { return nil }

type seriesSet struct {
	list []storage.Series
	at   int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.list) }
func (s *seriesSet) At() storage.Series                { return s.list[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
