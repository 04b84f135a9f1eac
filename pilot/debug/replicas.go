package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/replicas"
)

// replicasPage is the page that shows what all replicas answer. It is not served over xDS, by which replicas ask each
// other: so each question ends at the replica that is asked.
const replicasPage = "replicas"

// Replicas are the other replicas of this control plane; a *replicas.Replicas is.
type Replicas interface {
	// Ask asks all others for a page with its query, such as pushes?limit=5.
	Ask(ctx context.Context, question string) []replicas.Answer
}

// Replica is what one replica answers.
type Replica struct {
	Name    string          `json:"name"`
	Address string          `json:"address,omitempty"` // of its secure port; empty for the server that is asked
	Version string          `json:"version,omitempty"` // empty if it did not answer
	Self    bool            `json:"self,omitempty"`    // it is the server that is asked
	Error   string          `json:"error,omitempty"`   // why it did not answer
	Answer  json.RawMessage `json:"answer,omitempty"`  // the page; missing with an Error
}

// sharedPages are the pages that replicas are asked for. None of them changes anything.
func sharedPages() []string {
	return []string{"adsz", "authorizationz", "connections", "pushes", "syncz"}
}

// replicas returns what each replica answers to a page, syncz without a parameter page: this one first, then the others
// by name.
func (a *API) replicas(query url.Values) (any, error) {
	page := cmp.Or(query.Get("page"), "syncz")
	if !slices.Contains(sharedPages(), page) || page == "adsz" && query.Has("push") {
		return nil, fmt.Errorf("%w: page=%.64s is none of %s, which change nothing", ErrBadQuery, page, strings.Join(sharedPages(), ", "))
	}
	query.Del("page")
	question := page + "?" + query.Encode()
	own := Replica{Name: a.o.Name, Version: a.o.Version, Self: true}
	v, err := a.Answer(page, query)
	if err == nil {
		own.Answer, err = json.Marshal(v)
	}
	if errors.Is(err, ErrBadQuery) {
		return nil, err
	} else if err != nil {
		own.Error = err.Error()
	}
	list := []Replica{own}
	if a.o.Replicas != nil {
		list = append(list, ReplicasOf(a.o.Replicas.Ask(a.closing, question))...)
	}
	return list, nil
}

// ReplicasOf returns answers in the form in which they are shown.
func ReplicasOf(answers []replicas.Answer) (list []Replica) {
	for _, x := range answers {
		r := Replica{Name: x.Name, Address: x.Address, Version: x.Version, Answer: x.JSON}
		if x.Err != nil {
			r.Error = x.Err.Error()
		}
		list = append(list, r)
	}
	return list
}

// Getter returns the status and the text of a path of a server.
type Getter func(ctx context.Context, path string) (status int, text []byte, err error)

// AskAll returns what each replica answers to a page with its query, such as pushes?limit=5. A server that does not
// know others answers for itself.
func AskAll(ctx context.Context, get Getter, question string) ([]Replica, error) {
	page, query, _ := strings.Cut(question, "?")
	path := "/debug/" + replicasPage + "?page=" + page
	if query != "" {
		path += "&" + query
	}
	status, text, err := get(ctx, path)
	if err == nil && status == http.StatusNotFound {
		path = "/debug/" + question
		status, text, err = get(ctx, path)
		if err == nil && status == http.StatusOK {
			return []Replica{{Self: true, Answer: text}}, nil
		}
	}
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s: %d: %s", path, status, strings.TrimSpace(string(text)))
	}
	var list []Replica
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// ReadAll reads the answers of replicas as values of one type. Fields of other versions are ignored, and a replica
// whose answer cannot be read has an Error from then on. It returns an error if the answer of the server itself cannot
// be read.
func ReadAll[T any](list []Replica, take func(r *Replica, v T)) error {
	for i := range list {
		r := &list[i]
		if r.Error != "" {
			continue
		}
		var v T
		if err := json.Unmarshal(r.Answer, &v); err != nil {
			if r.Self {
				return errors.Join(errors.New("failed to read the answer of the server"), err)
			}
			r.Error = "its answer cannot be read: " + err.Error()
			continue
		}
		take(r, v)
	}
	return nil
}

// ReadProxies reads the answers of replicas to syncz. Where there are several replicas each proxy has the name of the
// one that serves it.
func ReadProxies(list []Replica) (all []ProxyStatus, err error) {
	err = ReadAll(list, func(r *Replica, proxies []ProxyStatus) {
		for _, p := range proxies {
			if len(list) > 1 || !r.Self {
				p.Replica = r.Name
			}
			all = append(all, p)
		}
	})
	return all, err
}

// Incomplete returns a line for each replica that did not answer, and for each that has another version than the server
// that was asked.
func Incomplete(list []Replica) (lines []string) {
	for _, r := range list {
		switch {
		case r.Error != "":
			lines = append(lines, fmt.Sprintf("%s did not answer: %s", r.Name, r.Error))
		case r.Version != list[0].Version:
			lines = append(lines, fmt.Sprintf("%s is of version %s, and %s of %s", r.Name, r.Version, list[0].Name, list[0].Version))
		}
	}
	return lines
}
