#include "evolve/store/database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

Status failed(sqlite3* database) {
  return {StatusCode::internal, fmt::format("store: {}", ::sqlite3_errmsg(database))};
}

}  // namespace

void Query::Finalize::operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
void Database::Close::operator()(sqlite3* database) const { ::sqlite3_close(database); }

Query::Query(sqlite3* database, const std::string& sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  error_ = ::sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr);
  statement_.reset(statement);
}

Query& Query::bind(const std::string& text) {
  if (error_ == 0) {
    error_ = ::sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                   SQLITE_TRANSIENT, SQLITE_UTF8);  // NOLINT: SQLite's own cast
  }
  return *this;
}

Query& Query::bind(int64_t number) {
  if (error_ == 0) error_ = ::sqlite3_bind_int64(statement_.get(), ++bound_, number);
  return *this;
}

Query& Query::bind(double number) {
  if (error_ == 0) error_ = ::sqlite3_bind_double(statement_.get(), ++bound_, number);
  return *this;
}

bool Query::next() {
  if (error_ != 0) return false;
  const int result = ::sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result != SQLITE_DONE) error_ = result;
  return false;
}

std::string Query::text(int column) const {
  const auto* const bytes =
      reinterpret_cast<const char*>(::sqlite3_column_text(statement_.get(), column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(::sqlite3_column_bytes(statement_.get(), column))};
}

int64_t Query::integer(int column) const {
  return ::sqlite3_column_int64(statement_.get(), column);
}
double Query::number(int column) const { return ::sqlite3_column_double(statement_.get(), column); }

Status Query::finish() {
  while (next()) {
  }
  return error_ == 0 ? Status() : failed(database_);
}

Result<Database> Database::open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int error =
      ::sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database database(raw);
  if (error != SQLITE_OK) {
    return invalid("{}: cannot be opened ({}), wanted a database", path, ::sqlite3_errmsg(raw));
  }
  ::sqlite3_busy_timeout(raw, 10000);
  FLASHCORE_RETURN_IF_ERROR(database.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL"));
  return database;
}

Status Database::run(const std::string& sql) {
  const int error = ::sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return error == SQLITE_OK ? Status() : failed(database_.get());
}

Database::Transaction::Transaction(Database& database)
    : database_(database), begun_(database.run("BEGIN IMMEDIATE")), open_(begun_.ok()) {}

Database::Transaction::~Transaction() {
  if (open_) (void)database_.run("ROLLBACK");
}

Status Database::Transaction::commit() {
  FLASHCORE_RETURN_IF_ERROR(begun_);
  FLASHCORE_RETURN_IF_ERROR(database_.run("COMMIT"));
  open_ = false;
  return {};
}

}  // namespace flashcore::evolve
