package crd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// eventMax bounds the size of an event in bytes.
const eventMax = 16 << 20

// stream is the response to a watch. client-go's stream copies every object three times in a chain of serializers.
type stream struct {
	body   io.ReadCloser
	item   itemFunc
	events chan watch.Event
	done   chan struct{}
	stop   sync.Once
	ended  func()

	silence time.Duration
	idle    *time.Timer // stops a stream after that silence
}

// newStream reads events from body until it ends, Stop is called, or no event comes for the time silence. Then it calls
// ended.
func (w *watched) newStream(body io.ReadCloser, silence time.Duration, ended func()) *stream {
	s := &stream{body: body, item: w.item, events: make(chan watch.Event), done: make(chan struct{}), ended: ended, silence: silence}
	s.idle = time.AfterFunc(silence, s.Stop)
	w.source.spawn(w.plural+" stream", func() {
		defer close(s.events)
		defer s.Stop()
		defer s.idle.Stop()
		err := errors.New("the stream was ended by a panic")
		defer func() { s.fail(err) }()
		err = s.read()
	})
	return s
}

// ResultChan is closed when the stream ends.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the stream.
func (s *stream) Stop() {
	s.stop.Do(func() {
		close(s.done)
		_ = s.body.Close() // the rest of the body is not needed
		s.ended()
	})
}

// fail sends the error that ended the stream, unless it was stopped or the API server ended it.
func (s *stream) fail(err error) {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	select {
	case <-s.done:
		return
	default:
	}
	status := apierrors.NewGenericServerResponse(
		http.StatusInternalServerError, "watch", schema.GroupResource{}, "", err.Error(), 0, false,
	).Status()
	s.send(watch.Event{Type: watch.Error, Object: &status})
}

func (s *stream) send(e watch.Event) bool {
	select {
	case <-s.done:
		return false
	case s.events <- e:
		return true
	}
}

// read sends events until the stream ends. A protobuf stream has frames of a four-byte length and an event. A JSON
// stream has one event after the other.
func (s *stream) read() error {
	in := &chunks{from: s.body}
	var head [4]byte
	var frame []byte
	if _, err := io.ReadFull(in, head[:1]); err != nil {
		return err
	}
	if head[0] == '{' {
		return s.readJSON(io.MultiReader(bytes.NewReader(head[:1]), in))
	}
	have := 1
	for {
		if _, err := io.ReadFull(in, head[have:]); err != nil {
			return err
		}
		have = 0
		size := int(binary.BigEndian.Uint32(head[:]))
		if size > eventMax {
			return fmt.Errorf("an event has %d bytes, more than %d", size, eventMax)
		}
		if cap(frame) < size || cap(frame) > 1<<20 {
			frame = make([]byte, size, max(size, 4<<10))
		}
		frame = frame[:size]
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		var kind string
		var object []byte
		if err := eachField(frame, func(number protowire.Number, _, value []byte) error {
			switch number {
			case 1:
				kind = string(value)
			case 2:
				object = fieldOf(value, 1)
			}
			return nil
		}); err != nil {
			return err
		}
		if ok, err := s.event(kind, object); !ok {
			return err
		}
	}
}

func (s *stream) readJSON(in io.Reader) error {
	bounded := &boundedReader{Reader: in}
	events := json.NewDecoder(bounded)
	for {
		bounded.left = eventMax
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&e); err != nil {
			return err
		}
		if ok, err := s.event(e.Type, e.Object); !ok {
			return err
		}
	}
}

// boundedReader fails after left bytes.
type boundedReader struct {
	io.Reader
	left int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("an event or a response exceeds its size limit")
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// event sends one event, and reports whether to continue.
func (s *stream) event(kind string, object []byte) (bool, error) {
	s.idle.Reset(s.silence)
	if watch.EventType(kind) == watch.Error {
		status, err := readStatus(object)
		if err != nil {
			return false, fmt.Errorf("decode a status: %w", err)
		}
		return s.send(watch.Event{Type: watch.Error, Object: status}), nil
	}
	var it *item
	var err error
	if panicked := safe.Do("crd decode", func() { it, err = readObject(object, s.item) }); panicked != nil {
		return false, panicked
	}
	if err != nil {
		return false, err
	}
	return s.send(watch.Event{Type: watch.EventType(kind), Object: it}), nil
}
