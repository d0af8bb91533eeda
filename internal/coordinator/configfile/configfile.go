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

// Package configfile reads the coordinator's configuration file: strictly, and with errors that say where in the
// file they are. It knows the form of the file and nothing of what the file means.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	yaml2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
)

// MaxSize is how large a file may be, in bytes: as much as a ConfigMap holds.
const MaxSize = 1 << 20

// File is a configuration file that was read.
type File struct {
	// Name is the file's, as the flag gave it.
	Name string
	// Content is what was read.
	Content []byte
	// Configuration is what the content says. What it does not say has its default.
	Configuration *configv1alpha1.CoordinatorConfiguration
	// set holds the paths of the fields that the content sets, such as "election.minTerm".
	set map[string]bool
}

// Sets reports whether the file sets the field of that path: its default, written out, is set as well.
func (f *File) Sets(path string) bool { return f != nil && f.set[path] }

// Read returns the content of a file.
func Read(name string) ([]byte, error) {
	content, err := read(name)
	if err != nil {
		// The file's name is told already.
		if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
			err = pathError.Err
		}
		return nil, fmt.Errorf("reading configuration file %q: %w", name, err)
	}
	return content, nil
}

func read(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > MaxSize {
		return nil, fmt.Errorf("more than %d bytes", MaxSize)
	}
	return content, nil
}

var scheme, strict = func() (*runtime.Scheme, runtime.Decoder) {
	scheme := runtime.NewScheme()
	utilruntime.Must(configv1alpha1.AddToScheme(scheme))
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	return scheme, info.StrictSerializer
}()

// Decode reads the content of a file. It reports every fault that it finds, each with the file's name and, but for
// faults of the YAML itself, the path of the field.
func Decode(name string, content []byte) (*File, error) {
	f := &File{Name: name, Content: content, set: map[string]bool{}}
	if faults := f.decode(); len(faults) > 0 {
		for i, fault := range faults {
			faults[i] = Wrap(name, fault)
		}
		return nil, errors.Join(faults...)
	}
	return f, nil
}

// Wrap returns a fault of a file with the file's name.
func Wrap(name string, fault error) error {
	return fmt.Errorf("configuration file %q: %w", name, fault)
}

func (f *File) decode() []error {
	if err := singleDocument(f.Content); err != nil {
		return []error{err}
	}
	asJSON, err := yaml.YAMLToJSONStrict(f.Content)
	if err != nil {
		return []error{readable(err)}
	}
	var content any
	if err := json.UnmarshalCaseSensitivePreserveInts(asJSON, &content); err != nil {
		return []error{err}
	}
	if err := checkKind(content); err != nil {
		return []error{err}
	}
	// The decoder itself stops at the first value of a wrong type, and names a Go type rather than the field.
	f.Configuration = &configv1alpha1.CoordinatorConfiguration{}
	if faults := f.checkTypes(content); len(faults) > 0 {
		return faults
	}
	if _, _, err := strict.Decode(f.Content, nil, f.Configuration); err != nil {
		if list, isStrict := runtime.AsStrictDecodingError(err); isStrict {
			return list.Errors()
		}
		return []error{err}
	}
	scheme.Default(f.Configuration)
	return nil
}

// singleDocument fails unless there is exactly one document: the decoder would read the first and ignore the rest.
func singleDocument(content []byte) error {
	documents := 0
	decoder := yaml2.NewDecoder(bytes.NewReader(content))
	for n := 1; ; n++ {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return readable(err)
		}
		// A "---" at the end begins nothing.
		if document != nil {
			documents = n
		}
	}
	switch {
	case documents == 0:
		return errors.New("is empty")
	case documents > 1:
		return fmt.Errorf("has %d YAML documents: must have one", documents)
	}
	return nil
}

// readable puts the faults of YAML in one line.
func readable(err error) error {
	if list := (*yaml2.TypeError)(nil); errors.As(err, &list) {
		return fmt.Errorf("yaml: %s", strings.Join(list.Errors, "; "))
	}
	return err
}

func checkKind(content any) error {
	want := fmt.Sprintf("apiVersion %q and kind %q", configv1alpha1.SchemeGroupVersion, configv1alpha1.Kind)
	object, isObject := content.(map[string]any)
	if !isObject {
		return fmt.Errorf("must be a mapping with %s, not %s", want, describe(content))
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if object[key] == nil {
			return fmt.Errorf("has no %s: must have %s", key, want)
		}
	}
	if object["apiVersion"] != configv1alpha1.SchemeGroupVersion.String() || object["kind"] != configv1alpha1.Kind {
		return fmt.Errorf("has apiVersion %s and kind %s: must have %s", describe(object["apiVersion"]), describe(object["kind"]), want)
	}
	return nil
}
