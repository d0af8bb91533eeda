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

package coordinator

import (
	"io"
	"time"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// NewLogger returns the logger that the options ask for. Its verbosity follows the configuration file once these
// options run.
func (o *Options) NewLogger(w io.Writer) logr.Logger {
	config := uberzap.NewProductionEncoderConfig()
	config.EncodeTime = func(t time.Time, e zapcore.PrimitiveArrayEncoder) {
		e.AppendString(t.UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
	config.EncodeLevel = func(l zapcore.Level, e zapcore.PrimitiveArrayEncoder) {
		// zap has no name for the levels below its own debug, which logr's higher verbosities are.
		e.AppendString(max(l, zapcore.DebugLevel).String())
	}
	encoder := zapcore.NewConsoleEncoder(config)
	if o.LogFormat == "json" {
		encoder = zapcore.NewJSONEncoder(config)
	}
	level := uberzap.NewAtomicLevelAt(levelOf(o.Verbosity))
	o.level = &level
	return zap.New(zap.WriteTo(w), zap.Encoder(encoder), zap.Level(level), zap.StacktraceLevel(zapcore.PanicLevel))
}
