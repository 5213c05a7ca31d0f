# Fingerprints of the measured code, compiled into the static library, which the measuring programs
# link: a hash of the CPU kernels' sources, and one of each device function's machine code, taken
# from this build's objects.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated/plan)
file(GLOB_RECURSE fingerprinted CONFIGURE_DEPENDS cpu/* problem/*.hpp kernel/*.hpp)
add_custom_command(OUTPUT ${generated}/fingerprints.inc
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py
          --root ${PROJECT_SOURCE_DIR} --output ${generated}/fingerprints.inc
  DEPENDS ${fingerprinted} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py
  COMMENT "Fingerprints of the CPU kernels' sources"
  VERBATIM)
if(FLASHCORE_HAS_CUDA)
  # The JSON file is for tools/report.py; it lists the functions of each recorded case.
  add_custom_command(
    OUTPUT ${generated}/machine_code.inc ${PROJECT_BINARY_DIR}/machine_code.json
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/machine_code.py
            --objects ${PROJECT_BINARY_DIR}/cuda_objects.txt --recorder $<TARGET_FILE:record_launches>
            --nvcc ${CMAKE_CUDA_COMPILER_VERSION} --json ${PROJECT_BINARY_DIR}/machine_code.json
            --table ${generated}/machine_code.inc
    DEPENDS record_launches $<TARGET_OBJECTS:flashcore_cuda>
            ${PROJECT_SOURCE_DIR}/tools/machine_code.py
    COMMENT "Hashes of the device functions' machine code"
    VERBATIM)
else()
  file(CONFIGURE OUTPUT ${generated}/machine_code.inc CONTENT "")
endif()
add_library(flashcore_fingerprints OBJECT plan/fingerprints.cpp)
target_include_directories(flashcore_fingerprints PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_link_libraries(flashcore_fingerprints PRIVATE flashcore_fmt flashcore_warnings)
set_source_files_properties(plan/fingerprints.cpp PROPERTIES
  OBJECT_DEPENDS "${generated}/fingerprints.inc;${generated}/machine_code.inc")
