// Copyright The lease-coordinator Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package explain

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// HandlerPath is where Handler is to be mounted, and everything below it.
const HandlerPath = "/debug/leases"

// Source knows leases at this moment, by what a coordinator observed itself.
type Source interface {
	// Leases returns those that have candidates, in order.
	Leases() []types.NamespacedName
	// Explain returns the facts about one of them; false if it is not known.
	Explain(key types.NamespacedName) (Facts, bool)
}

// Handler serves what a coordinator makes of its leases: HandlerPath lists them, one a line, and
// HandlerPath/{namespace}/{name} explains one, as text, or with ?o=json or ?o=yaml. It is for the server of metrics,
// which asks who comes: mount it at HandlerPath and at HandlerPath+"/".
func Handler(source Source) http.Handler {
	mux := http.NewServeMux()
	list := func(w http.ResponseWriter, r *http.Request) {
		writeList(w, r, source, http.StatusOK)
	}
	mux.HandleFunc("GET "+HandlerPath, list)
	mux.HandleFunc("GET "+HandlerPath+"/{$}", list)
	mux.HandleFunc("GET "+HandlerPath+"/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		format := Text
		if o := r.URL.Query().Get("o"); o != "" {
			var err error
			if format, err = ParseFormat(o); err != nil {
				http.Error(w, "o="+err.Error(), http.StatusBadRequest)
				return
			}
		}
		key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
		facts, known := source.Explain(key)
		if !known {
			writeList(w, r, source, http.StatusNotFound)
			return
		}
		var b bytes.Buffer
		if err := Print(&b, format, New(facts)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentTypes[format])
		write(w, http.StatusOK, b.Bytes())
	})
	mux.HandleFunc("GET "+HandlerPath+"/", func(w http.ResponseWriter, r *http.Request) {
		writeList(w, r, source, http.StatusNotFound)
	})
	return mux
}

var contentTypes = map[Format]string{
	Text: "text/plain; charset=utf-8",
	JSON: "application/json",
	YAML: "application/yaml",
}

// writeList writes a line for each lease: for browsers with links, or else as text.
func writeList(w http.ResponseWriter, r *http.Request, source Source, status int) {
	links := strings.Contains(r.Header.Get("Accept"), "text/html")
	var b bytes.Buffer
	put := func(line string) {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if links {
		put("<!DOCTYPE html><title>Leases</title><pre>")
	}
	if status == http.StatusNotFound {
		put("There is no such lease. Those with candidates are:")
	}
	for _, key := range source.Leases() {
		facts, known := source.Explain(key)
		if !known {
			continue
		}
		path := HandlerPath + "/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name)
		sentence := Clean(facts.Decision.Sentence())
		if links {
			put(fmt.Sprintf(`<a href="%s">%s</a>  %s`, html.EscapeString(path), html.EscapeString(key.String()), html.EscapeString(sentence)))
		} else {
			put(path + "  " + sentence)
		}
	}
	w.Header().Set("Content-Type", contentTypes[Text])
	if links {
		put("</pre>")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
	}
	write(w, status, b.Bytes())
}

// write sends a response. Whoever has gone meanwhile misses nothing.
func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
