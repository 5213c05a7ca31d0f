// A minimal wrapper of SQLite: statements that are finalised with their scope, and transactions
// that are rolled back unless they are committed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "flashcore/flashcore.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace flashcore::evolve {

class Query {
 public:
  // Binds parameters in order: ?, ?, ...
  Query& bind(const std::string& text);
  Query& bind(int64_t number);
  Query& bind(double number);

  // Advances to the next row; false after the last. An error is kept.
  bool next();
  std::string text(int column) const;
  int64_t integer(int column) const;
  double number(int column) const;

  // Runs a statement without rows, or reads to the end; returns the first error.
  Status finish();

 private:
  friend class Database;
  Query(sqlite3* database, const std::string& sql);
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  sqlite3* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
  int error_ = 0;
};

class Database {
 public:
  // Opens or creates a database with write-ahead logging.
  static Result<Database> open(const std::string& path);

  Status run(const std::string& sql);  // statements without parameters
  Query query(const std::string& sql) const { return {database_.get(), sql}; }

  class Transaction {
   public:
    explicit Transaction(Database& database);
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    ~Transaction();
    Status commit();

   private:
    Database& database_;
    Status begun_;
    bool open_;
  };

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database) : database_(database) {}
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace flashcore::evolve
