package apiserver

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// RoundTrip handles a request within the process.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	out, in := io.Pipe()
	w := &writer{header: http.Header{}, body: in, begun: make(chan struct{})}
	asked := r.WithContext(ctx)
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	go func() {
		defer cancel()
		s.ServeHTTP(w, asked)
		w.WriteHeader(http.StatusOK)
		_ = in.Close()
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done():
		_ = out.Close()
		return nil, r.Context().Err()
	}
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(io.EOF) })
	return &http.Response{
		StatusCode: w.code, Status: http.StatusText(w.code), Header: w.header, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Body: &body{out, func() { stop(); cancel() }},
	}, nil
}

// writer is the http.ResponseWriter of a request within the process.
type writer struct {
	header http.Header
	body   io.Writer
	once   sync.Once
	begun  chan struct{} // closed once code is set
	code   int
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(code int) {
	w.once.Do(func() {
		w.code = code
		close(w.begun)
	})
}

func (w *writer) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(text)
}

// body is the body of a response. Its Close ends the request.
type body struct {
	*io.PipeReader
	end func()
}

func (b *body) Close() error {
	b.end()
	return b.PipeReader.Close()
}
